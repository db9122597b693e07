package group

import "unicode/utf16"

// PartitionFor is the partition of __consumer_offsets that holds a group: Java's String.hashCode, made positive, modulo the number of
// partitions, as clients and tools compute it too.
func PartitionFor(group string, partitions int32) int32 {
	var h int32
	for _, r := range group {
		if hi, lo := utf16.EncodeRune(r); hi != '\uFFFD' {
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	if h < 0 {
		h = -h
	}
	if h < 0 { // the smallest int32 has no positive twin
		h = 0
	}
	return h % partitions
}
