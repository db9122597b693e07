// Package group is the group coordinator of the classic protocol: a pure core of groups and committed offsets over the records of
// __consumer_offsets, and a shell that loads partitions, appends records and keeps time. It knows no wire format and no
// replication: its caller (package broker) translates requests, tells it what this broker leads, and hands in the logs.
//
// After a crash or a change of leader, what was answered without error is what the log has: an answer that depends on a record
// is given only when that record is committed, and a partition serves only after all that its log had at the election is.
package group
