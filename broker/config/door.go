// Package config is the registry of keys: Kafka's broker and topic configurations under Kafka's names, types, defaults and ranges,
// plus varve's own; it parses, validates, merges and describes them.
package config
