package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/varvelog/varve/internal/vfs"
)

// cleanMark is what the clean-shutdown marker says, as Kafka writes it: the epoch of the registration that ended (KIP-966). An older
// epoch than the cluster's is the mark of an older disk.
type cleanMark struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
	// Line is ours: meta.Store.Line of the process that ended.
	Line []string `json:"line,omitempty"`
}

func encodeMark(epoch int64, line []string) []byte {
	if epoch == 0 {
		epoch = -1
	}
	b, _ := json.Marshal(cleanMark{BrokerEpoch: epoch, Line: line}) // numbers and strings
	return append(b, '\n')
}

// markMax bounds what is read of a marker.
const markMax = 4096

// CleanEpoch is the broker epoch, and the line, of the process that last closed all logs of dir in order; 0 and none if it did not, or if
// the marker says nothing that can be used. It is to be asked before Manager.Start, which removes the marker.
func CleanEpoch(fsys vfs.FS, dir string) (int64, []string, error) {
	name := path.Join(dir, cleanFile)
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	b := make([]byte, markMax)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, nil, fmt.Errorf("read %s: %w", name, err)
	}
	epoch, line := decodeMark(b[:n])
	return epoch, line, nil
}

// decodeMark is 0 for what cannot be read: the broker then counts as one that did not end in order.
func decodeMark(b []byte) (epoch int64, line []string) {
	var mark cleanMark
	if json.Unmarshal(b, &mark) != nil {
		return 0, nil
	}
	return max(mark.BrokerEpoch, 0), mark.Line
}
