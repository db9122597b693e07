// Package cluster has the end-to-end tests of several brokers: real processes that are killed, paused, stopped in turn, cut off from
// each other and from etcd, and that come back without their disks, while clients write and read. What the clients saw is checked
// against the model of a log by porcupine, and the replicas' files are compared. `make test` runs them; they need only Go.
package cluster
