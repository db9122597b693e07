package broker

import (
	"context"
	"net"
)

// conn is one client connection.
type conn struct {
	s  *Server
	nc net.Conn

	// ctx ends when the connection ends or the server cuts it; handlers that wait watch it.
	ctx    context.Context
	cancel context.CancelFunc

	clientID        string // of the request being handled
	softwareName    string // KIP-511, from ApiVersions
	softwareVersion string
	listener        string // name of the listener that accepted it
}
