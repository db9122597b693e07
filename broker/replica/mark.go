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
}

func encodeMark(epoch int64) []byte {
	if epoch == 0 {
		epoch = -1
	}
	b, _ := json.Marshal(cleanMark{BrokerEpoch: epoch}) // two numbers
	return append(b, '\n')
}

// markMax bounds what is read of a marker.
const markMax = 4096

// CleanEpoch is the broker epoch of the process that last closed all logs of dir in order; 0 if it did not, or if the marker says
// nothing that can be used. It is to be asked before Manager.Start, which removes the marker.
func CleanEpoch(fsys vfs.FS, dir string) (int64, error) {
	name := path.Join(dir, cleanFile)
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	b := make([]byte, markMax)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return decodeMark(b[:n]), nil
}

// decodeMark is 0 for what cannot be read: the broker then counts as one that did not end in order.
func decodeMark(b []byte) int64 {
	var mark cleanMark
	if json.Unmarshal(b, &mark) != nil || mark.BrokerEpoch < 0 {
		return 0
	}
	return mark.BrokerEpoch
}
