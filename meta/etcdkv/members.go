package etcdkv

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta"
)

// Member is a broker that hosts an etcd member.
type Member struct {
	ID         int32
	Host       string
	PeerPort   int
	ClientPort int
}

func (m Member) name() string { return "varve-" + strconv.Itoa(int(m.ID)) }
func (m Member) peerURL() string {
	return "http://" + net.JoinHostPort(m.Host, strconv.Itoa(m.PeerPort))
}
func (m Member) clientURL() string { return "http://" + m.Endpoint() }

// Endpoint is the member's host:port for clients.
func (m Member) Endpoint() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.ClientPort)) }

// ParseMembers reads ID@HOST:PEERPORT:CLIENTPORT,... An IPv6 host stands in brackets.
func ParseMembers(s string) ([]Member, error) {
	var out []Member
	for _, part := range strings.Split(s, ",") {
		m, err := parseMember(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("etcd member %q: %w: %w, want ID@HOST:PEERPORT:CLIENTPORT", part, meta.ErrInvalid, err)
		}
		for _, o := range out {
			if o.ID == m.ID || o.peerURL() == m.peerURL() {
				return nil, fmt.Errorf("etcd member %q: %w: named twice", part, meta.ErrInvalid)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMember(s string) (Member, error) {
	id, rest, ok := strings.Cut(s, "@")
	if !ok {
		return Member{}, fmt.Errorf("no '@'")
	}
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil || n < 0 {
		return Member{}, fmt.Errorf("id %q", id)
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return Member{}, fmt.Errorf("no client port")
	}
	host, peer, err := net.SplitHostPort(rest[:i])
	if err != nil || host == "" || strings.ContainsAny(host, "/?#@= ") {
		return Member{}, fmt.Errorf("host and peer port %q", rest[:i])
	}
	m := Member{ID: int32(n), Host: host}
	if m.PeerPort, err = port(peer); err != nil {
		return Member{}, err
	}
	if m.ClientPort, err = port(rest[i+1:]); err != nil {
		return Member{}, err
	}
	if m.PeerPort == m.ClientPort {
		return Member{}, fmt.Errorf("both ports are %d", m.PeerPort)
	}
	return m, nil
}

func port(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q", s)
	}
	return int(n), nil
}

// bindURL listens on the host itself if it is an address or localhost, else on all of the machine's.
func bindURL(host string, port int) url.URL {
	if net.ParseIP(host) == nil && host != "localhost" {
		host = "0.0.0.0"
	}
	return url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port))}
}
