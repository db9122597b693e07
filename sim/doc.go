// Package sim is a broker's whole world in one synctest bubble, drawn from a seed: an object store with faults, a disk that
// crashes, a metadata store that goes away, clients on in-memory connections, and virtual time.
//
// A run has three parts. A workload produces, reads, commits group offsets, deletes records and topics and changes
// configurations, through the wire protocol. A nemesis meanwhile kills the process or the machine, takes stores away, fills
// the disk. Then everything heals, and History and the bucket are compared: what was acknowledged is readable, local bytes
// are archived bytes, and what a bucket alone gives back for a moment is what the log was at that moment.
//
// The plan of a run follows from its seed alone. How goroutines interleave within one virtual instant does not, so a seed
// that failed may pass when it is run again: seeds/ keeps such seeds, and each run of the tests tries them anew.
//
// A Mutant is a planted bug at one of the seams. The tests require that each is found: it proves that the checkers can fail.
package sim
