package tier

import (
	"testing"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

func TestLastAppendIsNeverTooEarly(t *testing.T) {
	const unsure = manifest.AppendResolutionMs - 1
	list := []record.AppendTime{{Ms: 1000, Offset: 10}, {Ms: 2000, Offset: 20}}
	for _, c := range []struct {
		name                 string
		list                 []record.AppendTime
		seen                 int64
		timed                bool
		first, through, last int64
	}{
		{"last batch has an entry", list, 0, true, 1000, 2000, 2000},
		{"last batch follows the last entry", list, 0, false, 1000, 2000, 2000 + unsure},
		{"the log's last entry is not the last batch's either", list, 2000, false, 1000, 2000, 2000 + unsure},
		{"no entry", nil, 500, false, 500, 500, 500},
	} {
		first, through, last := appendBounds(c.list, c.seen, c.timed)
		if first != c.first || through != c.through || last != c.last {
			t.Errorf("%s: [%d, %d], through %d, want [%d, %d], through %d", c.name, first, last, through, c.first, c.last, c.through)
		}
	}
}
