package tier

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// Deleted records that never reached the archive are a gap there, and in no history of it. The log may still have them, where a crash
// came before it had noted its new start: it must not be thrown away for that, nor what was acknowledged behind them.
func TestWhatWasDeletedBeforeItWasArchivedIsNoDivergence(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.elect()
		w.append(20) // epoch 1, all in the log
		for _, c := range []struct {
			what string
			m    manifest.Manifest
			at   int64 // -1: no divergence
		}{
			{"all below archived-through is a gap", manifest.Manifest{N: 2, LogStart: 10, Through: 10}, -1},
			{"the gap is committed, the log start not yet", manifest.Manifest{N: 1, Through: 10}, -1},
			{"the history begins behind the gap", manifest.Manifest{N: 3, LogStart: 5, Through: 10, Epochs: []record.Epoch{{Epoch: 1, Start: 5}}}, -1},
			{"another epoch behind the gap", manifest.Manifest{N: 3, LogStart: 5, Through: 10, Epochs: []record.Epoch{{Epoch: 1, Start: 5}, {Epoch: 2, Start: 7}}}, 7},
			{"another epoch from the log start on", manifest.Manifest{N: 3, Through: 10, Epochs: []record.Epoch{{Epoch: 2, Start: 0}}}, 0},
			{"a log that ends too early", manifest.Manifest{N: 3, Through: 21, LogStart: 21}, 20},
		} {
			err := diverges(partA, &c.m, w.src.log)
			var d *DivergedError
			if c.at < 0 && err != nil || c.at >= 0 && (!errors.As(err, &d) || d.At != c.at) {
				t.Errorf("%s: %v, want a divergence at %d", c.what, err, c.at)
			}
		}
	})
}
