// Package broker is the Kafka server: listeners, ordered connections, one file per API, error mapping. The only
// importer of kmsg.
package broker
