//go:build !linux

package broker

import (
	"errors"
	"net"
	"os"
)

// rawSender is not used where there is no MSG_MORE.
type rawSender struct{}

func (r *rawSender) init(net.Conn)                         {}
func (r *rawSender) usable() bool                          { return false }
func (r *rawSender) more([]byte) error                     { return errors.ErrUnsupported }
func (r *rawSender) sendFile(*os.File, int64, int64) error { return errors.ErrUnsupported }
