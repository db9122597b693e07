package recovery

import "github.com/varvelog/varve/manifest"

// Info is an inventory as `archive info` shows it; its JSON is a contract.
type Info struct {
	Archive     string            `json:"archive"`
	Cluster     string            `json:"cluster"`
	Created     string            `json:"created"`
	Incarnation uint32            `json:"incarnation"`
	Window      WindowJSON        `json:"window"` // of the topics that are not internal
	Marks       []MarkInfo        `json:"marks,omitempty"`
	Attached    map[string]string `json:"attached,omitempty"` // URLs of archives that this one refers to, by id
	Topics      []TopicInfo       `json:"topics"`
	Damage      []Damage          `json:"damage,omitempty"`
}

// MarkInfo is up to when a broker has archived everything.
type MarkInfo struct {
	Broker  int32 `json:"broker"`
	Through Time  `json:"archived_through"`
}

// TopicInfo is one topic, living or deleted.
type TopicInfo struct {
	Name       string            `json:"name"`
	ID         manifest.TopicID  `json:"id"`
	Partitions int32             `json:"partitions"`
	Internal   bool              `json:"internal"`
	Created    Time              `json:"created"`
	Deleted    *Time             `json:"deleted"`
	Through    *Time             `json:"archived_through"` // everything appended up to then is archived
	LagMs      *int64            `json:"lag_ms"`           // the store's now minus that; null for a deleted topic
	Window     WindowJSON        `json:"window"`
	Segments   int               `json:"segments"`
	Bytes      int64             `json:"bytes"`
	Configs    map[string]string `json:"configs,omitempty"`
	Detail     []PartitionInfo   `json:"detail"`
}

// PartitionInfo is one partition; [Start, Through) can be read.
type PartitionInfo struct {
	Partition   int32     `json:"partition"`
	Start       int64     `json:"start"`
	Through     int64     `json:"through"`
	LastAppend  *Time     `json:"last_append"` // of the newest archived record
	LeaderEpoch int32     `json:"leader_epoch"`
	Segments    int       `json:"segments"`
	Bytes       int64     `json:"bytes"`
	Gaps        []GapPlan `json:"gaps,omitempty"`
	Error       string    `json:"error,omitempty"`
}

// Describe makes the document.
func (inv *Inventory) Describe(attached map[string]string) *Info {
	d := &Info{Archive: inv.Info.ID, Cluster: inv.Info.Cluster, Created: inv.Info.Created, Incarnation: inv.Incarnation,
		Attached: attached, Topics: []TopicInfo{}, Damage: inv.Damage}
	for _, m := range inv.Marks {
		d.Marks = append(d.Marks, MarkInfo{m.Broker, Time(m.TimeMs)})
	}
	var users []*Topic
	for _, t := range inv.Topics {
		if !t.Last().Internal {
			users = append(users, t)
		}
		d.Topics = append(d.Topics, inv.describe(t))
	}
	d.Window = inv.WindowOf(users).JSON()
	return d
}

func (inv *Inventory) describe(t *Topic) TopicInfo {
	last := t.Last()
	w := inv.WindowOf([]*Topic{t})
	d := TopicInfo{Name: last.Name, ID: t.ID, Partitions: last.Partitions, Internal: last.Internal, Created: Time(t.Created()),
		Configs: last.Configs, Window: w.JSON(), Detail: []PartitionInfo{}}
	if ms, ok := t.Dropped(); ok {
		at := Time(ms)
		d.Deleted = &at
	}
	if !w.Empty() {
		through := Time(w.To)
		d.Through = &through
		if d.Deleted == nil {
			lag := max(inv.Now-w.To, 0)
			d.LagMs = &lag
		}
	}
	for _, p := range t.Partitions {
		x := PartitionInfo{Partition: p.ID.Partition, LeaderEpoch: -1}
		if p.Err != nil {
			x.Error = p.Err.Error()
		}
		if m := p.Tip; m != nil {
			x.Start, x.Through, x.LeaderEpoch = m.LogStart, m.Through, lastEpoch(m)
			x.Segments, x.Bytes = p.Segments(), m.LiveBytes()
			if m.ThroughTime > 0 {
				at := Time(m.ThroughTime)
				x.LastAppend = &at
			}
			for _, g := range m.Gaps {
				x.Gaps = append(x.Gaps, GapPlan{g.From, g.To, g.Reason.String()})
			}
		}
		d.Segments += x.Segments
		d.Bytes += x.Bytes
		d.Detail = append(d.Detail, x)
	}
	return d
}
