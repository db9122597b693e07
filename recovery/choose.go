package recovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varvelog/varve/manifest"
)

// Request is what somebody wants restored.
type Request struct {
	Target   Target
	Topics   []string // names, or globs where they have * ? [; none: all topics that are not internal
	Internal bool     // with no Topics: the consumer groups' offsets too; internal topics may be named
	Rename   Rename
	Cluster  string // "" or the id that the archive's cluster must have
}

// offsetsTopic holds the consumer groups.
const offsetsTopic = "__consumer_offsets"

// chosen is a topic to restore, with its metadata as of the target.
type chosen struct {
	topic *Topic
	rec   *manifest.TopicRecord
	at    int64 // ms, the time that its records are restored as of; latest where it is maxTime
	note  string
}

// maxTime as a target time means: everything.
const maxTime = int64(1<<63 - 1)

// Skip is a topic that a restore leaves out, and why.
type Skip struct {
	Topic  string `json:"topic"`
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Select lists the topics that the request may mean, whatever its target: those whose window counts.
func (inv *Inventory) Select(req Request) ([]*Topic, error) {
	if err := checkPatterns(req.Topics); err != nil {
		return nil, err
	}
	var out []*Topic
	used := make([]bool, len(req.Topics))
	for _, t := range inv.Topics {
		if len(req.Topics) == 0 {
			if !t.Last().Internal || req.Internal && t.Last().Name == offsetsTopic && req.Target.Kind != Offsets {
				out = append(out, t)
			}
			continue
		}
		hit := false
		for i, p := range req.Topics {
			if matchName(p, t.Last().Name) && (!isGlob(p) || !t.Last().Internal) {
				used[i], hit = true, true
			}
		}
		if hit {
			out = append(out, t)
		}
	}
	for i, u := range used {
		if !u {
			return nil, fmt.Errorf("%w: no topic of the archive matches --topic %s; it has %s", ErrRequest, req.Topics[i], inv.names())
		}
	}
	if !req.Internal {
		for _, t := range out {
			if t.Last().Internal {
				return nil, fmt.Errorf("%w: topic %s is internal: it comes back with a whole cluster only", ErrRequest, t.Last().Name)
			}
		}
	}
	return out, nil
}

// names lists the archive's topics for an error message.
func (inv *Inventory) names() string {
	const most = 20
	var list []string
	for _, t := range inv.Topics {
		if n := t.Last().Name; !t.Last().Internal && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	switch {
	case len(list) == 0:
		return "no topics"
	case len(list) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// choose decides for each selected topic whether it is restored, and as of when. At a time it is what existed then. For
// latest and offsets it is what lives now, and a deleted topic, as of its deletion, where it is asked for by its name.
func (inv *Inventory) choose(req Request, selected []*Topic) (list []chosen, skipped []Skip, err error) {
	living := map[string]bool{}
	for _, t := range selected {
		if _, dropped := t.Dropped(); !dropped {
			living[t.Last().Name] = true
		}
	}
	for _, t := range selected {
		c, why := inv.chooseOne(req, t, living)
		if why != "" {
			skipped = append(skipped, Skip{t.Last().Name, t.ID.String(), why})
			continue
		}
		list = append(list, c)
	}
	for i := range list {
		for j := range list[:i] {
			if list[i].rec.Name == list[j].rec.Name {
				return nil, nil, fmt.Errorf("%w: two deleted topics of the name %s could be meant; give a time at which one of them lived (%s, %s)",
					ErrRequest, list[i].rec.Name, lived(list[j].topic), lived(list[i].topic))
			}
		}
	}
	return list, skipped, nil
}

func (inv *Inventory) chooseOne(req Request, t *Topic, living map[string]bool) (c chosen, skip string) {
	dropped, gone := t.Dropped()
	if req.Target.Kind == AtTime {
		rec := t.At(req.Target.Time)
		switch {
		case rec != nil && gone:
			return chosen{t, rec, req.Target.Time, "deleted at " + Stamp(dropped)}, ""
		case rec != nil:
			return chosen{t, rec, req.Target.Time, ""}, ""
		case t.Created() > req.Target.Time:
			return chosen{}, "created later, at " + Stamp(t.Created())
		}
		return chosen{}, "deleted before, at " + Stamp(dropped)
	}
	if !gone {
		return chosen{t, t.Last(), maxTime, ""}, ""
	}
	if !slices.Contains(req.Topics, t.Last().Name) || living[t.Last().Name] {
		return chosen{}, "deleted at " + Stamp(dropped)
	}
	return chosen{t, t.beforeDrop(), dropped, "deleted at " + Stamp(dropped) + ", restored as of then"}, ""
}

func lived(t *Topic) string {
	dropped, _ := t.Dropped()
	return Stamp(t.Created()) + " to " + Stamp(dropped)
}
