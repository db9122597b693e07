// Package recovery brings a topic or a cluster back from a bucket alone: inventory, target, plan, verify, execute.
package recovery
