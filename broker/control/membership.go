package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/varvelog/varve/meta"
)

// Membership keeps a broker registered: it leases the registration, waits until the controller has dealt with it, registers again when
// the lease is lost, and hands leaderships over before the broker stops.
type Membership struct {
	Store *meta.Store
	// Broker is what is registered; Broker.Previous and Continues are what the clean-shutdown mark says. Process is chosen by Join.
	Broker meta.Broker
	TTL    time.Duration // broker.session.timeout.ms
	// Rules are the controller's.
	Rules Rules
	// Again, if there is one, is called when a lost registration has been replaced.
	Again  func(context.Context)
	Logger *slog.Logger

	keep   func(context.Context) error // owned by Join, then by Run
	intact bool
}

const (
	registerRetry = time.Second
	admitPoll     = 2 * time.Millisecond
)

// Join registers.
func (m *Membership) Join(ctx context.Context) (err error) {
	if m.Broker.Process == "" {
		m.Broker.Process = rand.Text()
		img := m.Store.Image()
		m.intact = img.Known[m.Broker.ID] != nil && cleanly(img, &m.Broker)
	}
	_, m.keep, err = m.Store.Register(ctx, m.Broker, m.TTL.Milliseconds())
	return err
}

// Intact says, once Join has returned, that the directory holds all that the last process of this broker left, which ended in order.
func (m *Membership) Intact() bool { return m.intact }

// Run keeps the registration until ctx ends, and then ends it. One that was lost is replaced: the process has lost nothing, so that it
// names its former registration as the clean predecessor.
func (m *Membership) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := m.keep(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.Logger.Warn("registration lost; registering again", "broker", m.Broker.ID, "err", err)
		m.Broker.Previous = m.Store.Registration().Epoch
		for ctx.Err() == nil {
			if err = m.Join(ctx); err == nil {
				m.Logger.Info("registered again", "broker", m.Broker.ID, "epoch", m.Store.Registration().Epoch)
				if m.Again != nil {
					m.Again(ctx)
				}
				break
			}
			m.Logger.Warn("register", "broker", m.Broker.ID, "err", err)
			pause(ctx, registerRetry)
		}
	}
	return nil
}

// AwaitAdmission waits until the controller has dealt with the registration: only then the image tells what this broker leads.
func (m *Membership) AwaitAdmission(ctx context.Context) error {
	for !m.Store.Image().Admitted(m.Broker.ID, m.Store.Registration().Epoch) {
		if !pause(ctx, admitPoll) {
			return fmt.Errorf("wait for the controller to admit broker %d: %w", m.Broker.ID, context.Cause(ctx))
		}
	}
	return nil
}

// Drain hands over what others can lead, and leaves the ISRs, before the broker stops. It returns when the image shows it, when there
// is nobody to hand over to, or with ctx's error. Afterwards the broker does not stand for control any more.
func (m *Membership) Drain(ctx context.Context) error {
	if err := m.Store.Drain(ctx); err != nil {
		return err
	}
	for Held(m.Store.Image(), m.Broker.ID, m.Rules) > 0 {
		// A registration that was replaced meanwhile has not said that it ends.
		if b := m.Store.Image().Brokers[m.Broker.ID]; b != nil && !b.Draining && b.Epoch == m.Store.Registration().Epoch {
			if err := m.Store.Drain(ctx); err != nil && !errors.Is(err, meta.ErrLeaseLost) {
				return err
			}
		}
		if !pause(ctx, admitPoll) {
			return fmt.Errorf("drain broker %d: %d partitions are left: %w", m.Broker.ID, Held(m.Store.Image(), m.Broker.ID, m.Rules), ctx.Err())
		}
	}
	return m.Store.Resign(ctx)
}

// pause waits d; false says that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
