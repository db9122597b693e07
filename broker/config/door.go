// Package config is the registry of configuration keys: Kafka's broker and topic keys under Kafka's names, types,
// defaults and ranges, and varve's own. It parses, validates, merges and describes them; it reads no file and no
// environment, and holds no state. broker and cmd/varve call it.
//
// Sources: the broker and topic configuration tables of Apache Kafka's documentation (4.x), KIP-226 (dynamic broker
// configuration and synonyms), KIP-339 (incremental changes), KIP-405 (remote storage keys).
package config
