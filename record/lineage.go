package record

// Epoch is a leader epoch and the offset of its first record.
type Epoch struct {
	Epoch int32
	Start int64
}

// AppendTime says: the batch at Offset was appended at Ms by the leader's clock; later ones, up to the next entry, not before it.
type AppendTime struct {
	Ms     int64
	Offset int64
}

// AbortedTxn is an entry of the transaction index (KIP-98): the producer's data in [First, Last] is aborted, and
// LastStable was the last stable offset when its marker was written.
type AbortedTxn struct {
	ProducerID  int64
	First, Last int64
	LastStable  int64
}
