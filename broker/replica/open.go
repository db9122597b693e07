package replica

import (
	"errors"
	"fmt"
	"path"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// open recovers the log of p; nil if that fails. What it changed is not durable yet.
func (m *Manager) open(p *Partition) *localseg.Log {
	log, err := m.openLog(p)
	if err != nil {
		p.failed.Store(true)
		m.o.Logger.Error("open log", "topic", p.name, "partition", p.id.Partition, "err", err)
		p.fail(err)
		return nil
	}
	return log
}

// admit lets p be served, unless it is led and its records are in the archive alone.
func (m *Manager) admit(p *Partition, mp *meta.Partition) {
	log := p.log
	m.configure(p)
	p.step(Event{Kind: Opened, LEO: log.LEO(), HW: m.committedBefore(p, mp)})
	m.assume(p, mp)
	if m.misreported(p, mp) {
		m.offliner.add(p)
	}
	leads := p.Leading()
	switch {
	case leads && mp.Pointer.Through > log.LEO() && p.tiered.Load():
		// A fresh restored directory, or a lost disk: the log begins where the archive ends. Never an empty log.
		p.resuming.Store(true)
		m.leader.addFirst(p)
		return
	case leads && mp.Pointer.Through > log.LEO():
		m.o.Logger.Error("records are in an archive, but archiving is off", "topic", p.name, "partition", p.id.Partition,
			"offset", mp.Pointer.Through)
		p.failed.Store(true)
		return
	case leads && p.tiered.Load() && (mp.Pointer.Manifest != "" || log.LEO() > 0):
		m.leader.add(p)
	}
	p.ready.Store(true)
}

// committedBefore is a high watermark that the partition had before this process, as the last one left it. What is archived was committed
// as well, but not what this log has in its place, if it diverges from the leader's: only the sole replica knows that it does not.
func (m *Manager) committedBefore(p *Partition, mp *meta.Partition) int64 {
	hw := max(m.marks[hwKey{p.id.Topic.String(), p.id.Partition}], p.log.LogStart())
	if len(mp.Replicas) == 1 {
		hw = max(hw, mp.Pointer.Through)
	}
	return hw
}

// openLog opens the log directory; one of a former topic of the same name is moved out of the way.
func (m *Manager) openLog(p *Partition) (*localseg.Log, error) {
	m.reclaim(p.name, p.id)
	open := func() (*localseg.Log, error) {
		return m.openDir(p.topic.Load(), p.id, func() { m.flusher.add(p) }, p.fail)
	}
	log, err := open()
	if errors.Is(err, errOtherTopic) {
		if err := m.setAside(fmt.Sprintf("%s-%d", p.name, p.id.Partition)); err != nil {
			return nil, err
		}
		return open()
	}
	return log, err
}

func (m *Manager) openDir(t *meta.Topic, id manifest.PartitionID, onRoll func(), onError func(error)) (*localseg.Log, error) {
	cfg, _ := m.o.TopicConfig(t)
	return localseg.Open(m.fs, path.Join(m.o.Dir, fmt.Sprintf("%s-%d", t.Name, id.Partition)), localseg.Options{
		Topic: t.Name, TopicID: id.Topic, Partition: id.Partition, Config: cfg, Clean: m.clean, DeferSync: true,
		Logger: m.o.Logger, Files: m.files, Clock: &m.clock, OnRoll: onRoll, OnError: onError,
	})
}
