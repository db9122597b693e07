// Package group is the group coordinator (classic protocol): a pure core of groups and offsets over the records of
// __consumer_offsets, and a shell that loads, appends and times. No Kafka wire types.
package group
