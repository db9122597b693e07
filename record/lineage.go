package record

import "math"

// Epoch is a leader epoch and the offset of its first record.
type Epoch struct {
	Epoch int32
	Start int64
}

// AppendResolutionMs bounds how long a stretch of append times is: batches appended this long or longer apart are told apart.
const AppendResolutionMs = 20

// AppendTime is a stretch of batches, from Offset up to the Offset of the next one: they were appended from Ms to LastMs, both
// included, by the leader's clock. Where times were lost both are bounds.
type AppendTime struct {
	Ms     int64
	Offset int64
	SpanMs uint32
}

// LastMs is when the last batch of the stretch was appended, at the latest.
func (a AppendTime) LastMs() int64 {
	if a.Ms > math.MaxInt64-int64(a.SpanMs) {
		return math.MaxInt64
	}
	return a.Ms + int64(a.SpanMs)
}

// Until ends the stretch at lastMs. One that would be longer than SpanMs can say begins later instead: who cuts by time then
// leaves records out, and takes none that came after.
func (a AppendTime) Until(lastMs int64) AppendTime {
	switch span := lastMs - a.Ms; {
	case span <= 0:
		a.Ms, a.SpanMs = lastMs, 0
	case span > math.MaxUint32:
		a.Ms, a.SpanMs = lastMs-math.MaxUint32, math.MaxUint32
	default:
		a.SpanMs = uint32(span)
	}
	return a
}

// AbortedTxn is an entry of the transaction index (KIP-98): the producer's data in [First, Last] is aborted, and
// LastStable was the last stable offset when its marker was written.
type AbortedTxn struct {
	ProducerID  int64
	First, Last int64
	LastStable  int64
}
