// Package wire gives the processes of a test a machine each, as far as the network goes: a network namespace with one interface, whose
// packets the test's own process carries from one to the other, late, or not at all. Nobody is told: what is cut off meets silence, half-open
// connections and retransmissions, none of which a relay before a listener can show.
//
// The interfaces are TUN devices and the switch is this package, so that neither tools nor traffic control of the kernel are needed; Linux,
// /dev/net/tun and either root or user namespaces are. Nothing remains when the test's process ends, however it ends: Enter moves it
// into a namespace of its own, and its devices, the other namespaces and the processes in them go with it.
package wire
