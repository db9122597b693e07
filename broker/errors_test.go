package broker

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/internal/vfs"
)

func TestADiskErrorIsRetriable(t *testing.T) {
	err := fmt.Errorf("read offset 7: %w", &fs.PathError{Op: "read", Path: "/data/t-0/0.log", Err: vfs.ErrInjected})
	if got := code(err); got != kerr.KafkaStorageError.Code {
		t.Fatalf("code = %d, want %d", got, kerr.KafkaStorageError.Code)
	}
}
