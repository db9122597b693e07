package recovery

import (
	"github.com/varvelog/varve/manifest"
)

// planFormat is the version of a plan's JSON.
const planFormat = 1

// Plan is what a restore will do. Its JSON is what --output json prints, and what a broker is sent topic by topic.
type Plan struct {
	Format      int         `json:"format"`
	Archive     string      `json:"archive"`
	Cluster     string      `json:"cluster"`
	URL         string      `json:"repo"`
	Kind        Kind        `json:"type"`
	Time        *Time       `json:"time,omitempty"`
	Window      WindowJSON  `json:"window"`
	Consistency string      `json:"consistency"` // partition: each is cut by itself
	Topics      []TopicPlan `json:"topics"`
	Skipped     []Skip      `json:"skipped,omitempty"`
	Warnings    []string    `json:"warnings,omitempty"`
}

// WindowJSON is a window; its fields are null where there is nothing to restore.
type WindowJSON struct {
	From *Time `json:"from"`
	To   *Time `json:"to"`
}

// JSON is the window as documents show it.
func (w Window) JSON() WindowJSON {
	if w.Empty() {
		return WindowJSON{}
	}
	from, to := Time(w.From), Time(w.To)
	return WindowJSON{&from, &to}
}

// TopicPlan is one topic of a plan.
type TopicPlan struct {
	Source     string            `json:"source"` // its name in the archive as of the target
	ID         manifest.TopicID  `json:"id"`     // there
	Name       string            `json:"name"`   // the new one
	Internal   bool              `json:"internal,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"` // as of the target
	Note       string            `json:"note,omitempty"`
	Partitions []PartitionPlan   `json:"partitions"`
}

// PartitionPlan is one partition: records [Start, End) come back under their offsets.
type PartitionPlan struct {
	Partition int32     `json:"partition"`
	Start     int64     `json:"start"`
	End       int64     `json:"end"`
	Segments  int       `json:"segments"`
	Bytes     int64     `json:"bytes"`         // of the batches in the objects referred to
	Cut       bool      `json:"cut,omitempty"` // the last object is trimmed: what is left of its end is written anew
	Gaps      []GapPlan `json:"gaps,omitempty"`

	// Where the time falls among records that were appended so close together that only their order is known: how close, and
	// how many offsets behind End may have been appended by then too. 0 where the cut is exact.
	ResolutionMs int64 `json:"resolution_ms,omitempty"`
	LeftOut      int64 `json:"left_out_max,omitempty"`

	source *manifest.Manifest
	kept   []manifest.Entry // what the new manifest lists, as the source's does; the last one may be trimmed
	before []manifest.Entry // where the state at a cut begins: the entry before the last one's object, and where that one is trimmed those before it
	holes  []manifest.Gap
}

// GapPlan is a range of offsets without records.
type GapPlan struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"`
}

// Records is the number of offsets that come back, and of those in gaps.
func (p *PartitionPlan) Records() (offsets, missing int64) {
	for _, g := range p.Gaps {
		missing += g.To - g.From
	}
	return p.End - p.Start - missing, missing
}

// HasGaps reports whether any partition has one.
func (p *Plan) HasGaps() bool {
	for i := range p.Topics {
		for j := range p.Topics[i].Partitions {
			if len(p.Topics[i].Partitions[j].Gaps) > 0 {
				return true
			}
		}
	}
	return false
}
