// Package sim is whole worlds in a synctest bubble, drawn from a seed: an object store with faults, disks that crash, a metadata store
// that goes away, clients and brokers on in-memory connections, and virtual time.
//
// There are two. A World has one broker: its log, its archive, what a crash at any call to the disk leaves. A Cluster has three or five,
// joined as cmd/varve joins them, on a network that is slow, cut one way or both, and held as if a process stood still; processes are
// killed and drained, machines crash, disks come back empty or as they were earlier, brokers are unregistered and come back all the same, and
// the clocks of brokers are set forward and back by up to an hour. Some topics prefer a leader that was not in sync to none, or have a single replica: what these may lose is in doubt.go.
// The bubble has one clock, which durations and the object store go by; what people read is internal/wallclock's.
//
// Groups commit offsets, in either world, to a coordinator that moves with its partition.
//
// A run has three parts. A workload produces, reads, commits group offsets, deletes records and topics, changes configurations and moves
// partitions, through the wire protocol. A nemesis meanwhile does harm, though never more at once than a cluster promises to survive.
// Then everything heals, and History, logs and the bucket are compared: what was acknowledged is readable, replicas and archive have the
// same bytes, every ISR is full again, and what a bucket alone gives back is what the log was.
//
// The plan of a run follows from its seed alone. How goroutines interleave within one virtual instant does not, so a seed
// that failed may pass when it is run again: seeds/ keeps such seeds, and each run of the tests tries them anew.
//
// A Mutant or ClusterMutant is a planted bug at one of the seams. The tests require that each is found: it proves that the checkers can
// fail.
package sim
