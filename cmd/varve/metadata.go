package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/meta/etcdkv"
)

// metadata is the way to etcd: a member in this process, or a client of members elsewhere.
type metadata struct {
	kv     *etcdkv.KV
	server *etcdkv.Server // nil: elsewhere
}

// openMetadata follows the configuration: etcd.initial.cluster makes this broker a member if it is named there and a client of those
// members if not; etcd.embedded alone is a single member that only this process reaches; else etcd.endpoints.
func openMetadata(ctx context.Context, c *config.Broker, id int32, log *slog.Logger) (*metadata, error) {
	log = log.With("part", "etcd")
	o := etcdkv.ServerOptions{Dir: filepath.Join(c.Dir(), etcdDir), ID: id, Logger: log}
	if list := c.List("etcd.initial.cluster"); len(list) > 0 {
		members, err := etcdkv.ParseMembers(strings.Join(list, ","))
		if err != nil {
			return nil, usagef("etcd.initial.cluster: %v", err)
		}
		var endpoints []string
		here := false
		for _, m := range members {
			endpoints = append(endpoints, m.Endpoint())
			here = here || m.ID == id
		}
		if !here {
			return dialMetadata(endpoints, log)
		}
		o.Members = members
	} else if !c.Bool("etcd.embedded") {
		return dialMetadata(c.List("etcd.endpoints"), log)
	}
	s, err := etcdkv.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	return &metadata{kv: s.KV(), server: s}, nil
}

func dialMetadata(endpoints []string, log *slog.Logger) (*metadata, error) {
	kv, err := etcdkv.Dial(etcdkv.Options{Endpoints: endpoints, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("etcd.endpoints: %w", err)
	}
	return &metadata{kv: kv}, nil
}

// Watch returns the embedded member's failure, or nil when ctx ends.
func (m *metadata) Watch(ctx context.Context) error {
	if m.server == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.server.Err():
		return err
	}
}

// Close closes the client before the member.
func (m *metadata) Close() error {
	if m.server != nil {
		return m.server.Close()
	}
	return m.kv.Close()
}
