package recovery

import "github.com/varvelog/varve/manifest"

// Last is the newest record of the topic.
func (t *Topic) Last() *manifest.TopicRecord { return &t.Records[len(t.Records)-1] }

// Created is the time of the topic's first record, ms.
func (t *Topic) Created() int64 { return t.Records[0].Time }

// Dropped is when the topic was deleted, ms; ok is false while it lives.
func (t *Topic) Dropped() (ms int64, ok bool) {
	if last := t.Last(); last.Event == manifest.TopicDropped {
		return last.Time, true
	}
	return 0, false
}

// At is the topic's metadata as of a time, ms: nil if it did not exist then.
func (t *Topic) At(ms int64) *manifest.TopicRecord {
	for i := len(t.Records) - 1; i >= 0; i-- {
		r := &t.Records[i]
		if r.Time > ms {
			continue
		}
		if r.Event == manifest.TopicDropped {
			return nil
		}
		return r
	}
	return nil
}

// beforeDrop is the metadata that the topic had when it was deleted.
func (t *Topic) beforeDrop() *manifest.TopicRecord {
	for i := len(t.Records) - 1; i >= 0; i-- {
		if t.Records[i].Event != manifest.TopicDropped {
			return &t.Records[i]
		}
	}
	return t.Last() // it has the same metadata as the lost record before it
}
