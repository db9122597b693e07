package broker

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

// groupWorld is a broker with few partitions of __consumer_offsets and no delay of first rebalances.
func groupWorld(t testing.TB, set settings, props map[string]string) *world {
	t.Helper()
	all := map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4", "etcd.embedded": "true"}
	for k, v := range props {
		all[k] = v
	}
	conf, _, err := config.New(all)
	if err != nil {
		t.Fatal(err)
	}
	set.broker = func(o *Options) { o.Config = conf }
	return newWorld(t, set)
}

// ready finds the coordinator of a group and waits until it has loaded.
func (w *world) ready(c *client, group string) {
	w.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{group}
	w.until("the coordinator has loaded", func() bool {
		f := c.do(find).(*kmsg.FindCoordinatorResponse)
		if f.Coordinators[0].ErrorCode != 0 {
			return false
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID = group, "x"
		code := c.do(beat).(*kmsg.HeartbeatResponse).ErrorCode
		return code == kerr.UnknownMemberID.Code
	})
}

func want(t *testing.T, what string, got, code int16) {
	t.Helper()
	if got != code {
		t.Errorf("%s: %v, want %v", what, kerr.ErrorForCode(got), kerr.ErrorForCode(code))
	}
}

func TestFindCoordinatorCreatesTheTopicInEachVersion(t *testing.T) {
	for v := int16(0); v <= 6; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			w := groupWorld(t, settings{}, nil)
			c := w.dial()
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorKey, req.CoordinatorKeys = v, "g", []string{"g", "h"}
			resp := c.do(req).(*kmsg.FindCoordinatorResponse)
			answers := resp.Coordinators
			if v < 4 {
				answers = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port, ErrorCode: resp.ErrorCode}}
			} else if len(answers) != 2 || answers[0].Key != "g" || answers[1].Key != "h" {
				t.Fatalf("answers: %+v", answers)
			}
			for _, a := range answers {
				if a.ErrorCode != 0 || a.NodeID != 1 || fmt.Sprintf("%s:%d", a.Host, a.Port) != w.addr {
					t.Errorf("coordinator: %+v, want %s", a, w.addr)
				}
			}
			topic := w.store.Image().Topics[offsetsTopic]
			if topic == nil || !topic.Internal || len(topic.Partitions) != 4 || topic.Configs["cleanup.policy"] != "compact" ||
				topic.Configs["compression.type"] != "producer" || topic.Configs["segment.bytes"] != "104857600" {
				t.Errorf("topic: %+v", topic)
			}
			if v >= 1 {
				req.CoordinatorType, req.CoordinatorKeys = 1, []string{"tx"}
				if resp := c.do(req).(*kmsg.FindCoordinatorResponse); resp.ErrorCode == 0 && (v < 4 || resp.Coordinators[0].ErrorCode == 0) {
					t.Errorf("transaction coordinator: %+v", resp)
				}
				req.CoordinatorType = 9
				resp := c.do(req).(*kmsg.FindCoordinatorResponse)
				if v < 4 {
					want(t, "unknown type", resp.ErrorCode, kerr.InvalidRequest.Code)
				} else {
					want(t, "unknown type", resp.Coordinators[0].ErrorCode, kerr.InvalidRequest.Code)
				}
			}
		})
	}
}

// joinGroup joins in a version, with a member id if one is asked for, and returns the last answer.
func (c *client) joinGroup(v int16, group, member string, instance *string) *kmsg.JoinGroupResponse {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = v, group, member, instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 10_000, 10_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("meta")
	req.Protocols = append(req.Protocols, p)
	resp := c.do(req).(*kmsg.JoinGroupResponse)
	if resp.ErrorCode == kerr.MemberIDRequired.Code && v >= 4 && instance == nil {
		req.MemberID = resp.MemberID
		resp = c.do(req).(*kmsg.JoinGroupResponse)
	}
	return resp
}

func TestAGroupLivesInEachVersion(t *testing.T) {
	w := groupWorld(t, settings{}, nil)
	topic := w.topic("t", 2, nil)
	c := w.dial()
	w.ready(c, "g")
	upTo := func(v, most int16) int16 { return min(v, most) }
	for v := int16(0); v <= 10; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			c.t = t
			group := fmt.Sprintf("g%d", v)
			var instance *string
			if v == 7 {
				instance = kmsg.StringPtr("static")
			}
			j := c.joinGroup(upTo(v, 9), group, "", instance)
			if j.ErrorCode != 0 || j.Generation != 1 || j.LeaderID != j.MemberID || j.MemberID == "" || orEmpty(j.Protocol) != "range" ||
				len(j.Members) != 1 || string(j.Members[0].ProtocolMetadata) != "meta" || v >= 7 && orEmpty(j.ProtocolType) != "consumer" {
				t.Fatalf("join: %+v", j)
			}

			sync := kmsg.NewPtrSyncGroupRequest()
			sync.Version, sync.Group, sync.MemberID, sync.Generation, sync.InstanceID = upTo(v, 5), group, j.MemberID, 1, instance
			sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = j.MemberID, []byte("mine")
			sync.GroupAssignment = append(sync.GroupAssignment, a)
			s := c.do(sync).(*kmsg.SyncGroupResponse)
			if s.ErrorCode != 0 || string(s.MemberAssignment) != "mine" || v >= 5 && orEmpty(s.Protocol) != "range" {
				t.Fatalf("sync: %+v", s)
			}
			if sync.Version >= 5 {
				sync.Protocol = nil
				want(t, "sync without protocol", c.do(sync).(*kmsg.SyncGroupResponse).ErrorCode, kerr.InconsistentGroupProtocol.Code)
			}

			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Version, beat.Group, beat.MemberID, beat.Generation, beat.InstanceID = upTo(v, 4), group, j.MemberID, 1, instance
			want(t, "heartbeat", c.do(beat).(*kmsg.HeartbeatResponse).ErrorCode, 0)
			beat.Generation = 0
			want(t, "heartbeat of another generation", c.do(beat).(*kmsg.HeartbeatResponse).ErrorCode, kerr.IllegalGeneration.Code)

			desc := kmsg.NewPtrDescribeGroupsRequest()
			desc.Version, desc.Groups = upTo(v, 6), []string{group, "none"}
			d := c.do(desc).(*kmsg.DescribeGroupsResponse)
			g := d.Groups[0]
			if g.State != "Stable" || g.Protocol != "range" || len(g.Members) != 1 || g.Members[0].ClientHost != "/127.0.0.1" ||
				g.Members[0].ClientID != "test" || string(g.Members[0].MemberAssignment) != "mine" || v >= 4 && orEmpty(g.Members[0].InstanceID) != orEmpty(instance) {
				t.Errorf("describe: %+v", g)
			}
			none := int16(0)
			if v >= 6 {
				none = kerr.GroupIDNotFound.Code
			}
			if n := d.Groups[1]; n.State != "Dead" || n.ErrorCode != none {
				t.Errorf("describe of no group: %+v", n)
			}

			list := kmsg.NewPtrListGroupsRequest()
			list.Version, list.StatesFilter, list.TypesFilter = upTo(v, 5), []string{"stable"}, []string{"Classic"}
			if l := c.do(list).(*kmsg.ListGroupsResponse); !slices.ContainsFunc(l.Groups, func(g kmsg.ListGroupsResponseGroup) bool {
				return g.Group == group && g.ProtocolType == "consumer" && (v < 4 || g.GroupState == "Stable") && (v < 5 || g.GroupType == "classic")
			}) {
				t.Errorf("list: %+v", l)
			}
			if list.Version >= 4 {
				list.StatesFilter = []string{"Empty"}
				if l := c.do(list).(*kmsg.ListGroupsResponse); slices.ContainsFunc(l.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == group }) {
					t.Errorf("list of empty groups: %+v", l)
				}
			}
			if list.Version >= 5 {
				list.StatesFilter, list.TypesFilter = nil, []string{"consumer"}
				if l := c.do(list).(*kmsg.ListGroupsResponse); len(l.Groups) != 0 {
					t.Errorf("list of groups of another type: %+v", l)
				}
			}

			if v >= 2 {
				c.commitInVersion(t, v, group, j.MemberID, instance, topic.ID)
			}
			if v >= 1 {
				c.fetchInVersion(t, v, group, topic.ID, v >= 2)
			}

			del := kmsg.NewPtrDeleteGroupsRequest()
			del.Version, del.Groups = upTo(v, 3), []string{group}
			want(t, "delete of a group with members", c.do(del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, kerr.NonEmptyGroup.Code)

			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Version, leave.Group, leave.MemberID = upTo(v, 5), group, "nobody"
			m := kmsg.NewLeaveGroupRequestMember()
			m.MemberID, m.InstanceID = j.MemberID, instance
			leave.Members = append(leave.Members, m)
			l := c.do(leave).(*kmsg.LeaveGroupResponse)
			if leave.Version < 3 {
				want(t, "leave of nobody", l.ErrorCode, kerr.UnknownMemberID.Code)
				leave.MemberID = j.MemberID
				l = c.do(leave).(*kmsg.LeaveGroupResponse)
			} else if len(l.Members) != 1 || l.Members[0].ErrorCode != 0 || l.Members[0].MemberID != j.MemberID {
				t.Errorf("leave: %+v", l)
			}
			want(t, "leave", l.ErrorCode, 0)

			want(t, "delete", c.do(del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, 0)
			want(t, "delete again", c.do(del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, kerr.GroupIDNotFound.Code)
		})
	}
	c.t = t
}

func (c *client) commitInVersion(t *testing.T, v int16, group, member string, instance *string, id [16]byte) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = v, group, member, 1, instance
	for _, name := range []string{"t", "none"} {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = name
		if name == "t" {
			rt.TopicID = id
		} else {
			rt.TopicID = [16]byte{1}
		}
		for _, p := range []int32{0, 7} {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, 40+int64(v), 3, kmsg.StringPtr("m")
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := c.do(req).(*kmsg.OffsetCommitResponse)
	unknown := kerr.UnknownTopicOrPartition.Code
	if v >= 10 {
		unknown = kerr.UnknownTopicID.Code
	}
	want(t, "commit", resp.Topics[0].Partitions[0].ErrorCode, 0)
	want(t, "commit of no partition", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition.Code)
	want(t, "commit of no topic", resp.Topics[1].Partitions[0].ErrorCode, unknown)

	req.Topics, req.Group = req.Topics[:1], "none"
	gone := kerr.IllegalGeneration.Code
	if v >= 9 {
		gone = kerr.GroupIDNotFound.Code
	}
	want(t, "commit to no group", c.do(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, gone)
	req.Group, req.MemberID = group, "nobody"
	code := kerr.UnknownMemberID.Code
	if instance != nil {
		code = kerr.FencedInstanceID.Code
	}
	want(t, "commit of nobody", c.do(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, code)
}

func (c *client) fetchInVersion(t *testing.T, v int16, group string, id [16]byte, committed bool) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.RequireStable = v, group, true
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 1}
	req.Topics = append(req.Topics, rt)
	for _, name := range []string{group, "none"} {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = name
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = "t", id, []int32{0, 1}
		rg.Topics = append(rg.Topics, gt)
		if v >= 10 && name == group {
			gt.TopicID = [16]byte{9}
			rg.Topics = append(rg.Topics, gt)
		}
		req.Groups = append(req.Groups, rg)
	}
	all := kmsg.NewOffsetFetchRequestGroup()
	all.Group = group
	req.Groups = append(req.Groups, all)

	type answer struct {
		offset int64
		epoch  int32
		meta   string
	}
	of := func(offset int64, epoch int32, meta string) string { return fmt.Sprint(answer{offset, epoch, meta}) }
	expect := of(-1, -1, "")
	if committed {
		epoch := int32(-1)
		if v >= 6 {
			epoch = 3
		}
		expect = of(40+int64(v), epoch, "m")
	}
	resp := c.do(req).(*kmsg.OffsetFetchResponse)
	if v < 8 {
		want(t, "fetch", resp.ErrorCode, 0)
		ps := resp.Topics[0].Partitions
		if got := of(ps[0].Offset, ps[0].LeaderEpoch, orEmpty(ps[0].Metadata)); got != expect || ps[1].Offset != -1 || ps[1].ErrorCode != 0 {
			t.Errorf("fetch: %+v, want %s", ps, expect)
		}
		if v >= 2 {
			req.Topics = nil
			if resp := c.do(req).(*kmsg.OffsetFetchResponse); len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
				t.Errorf("fetch of all: %+v", resp)
			}
		}
		req.Topics = []kmsg.OffsetFetchRequestTopic{}
		if resp := c.do(req).(*kmsg.OffsetFetchResponse); len(resp.Topics) != 0 {
			t.Errorf("fetch of none: %+v", resp)
		}
		return
	}
	ps := resp.Groups[0].Topics[0].Partitions
	if got := of(ps[0].Offset, ps[0].LeaderEpoch, orEmpty(ps[0].Metadata)); got != expect || ps[1].Offset != -1 || resp.Groups[0].ErrorCode != 0 {
		t.Errorf("fetch: %+v, want %s", ps, expect)
	}
	if v >= 10 {
		want(t, "fetch of no topic", resp.Groups[0].Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicID.Code)
	}
	if g := resp.Groups[1]; g.ErrorCode != 0 || g.Topics[0].Partitions[0].Offset != -1 {
		t.Errorf("fetch of no group: %+v", g)
	}
	if g := resp.Groups[2]; len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 || v >= 10 && g.Topics[0].TopicID != id {
		t.Errorf("fetch of all: %+v", g)
	}
}

// commitOffset commits without members; it returns the code.
func (c *client) commitOffset(group, topic string, partition int32, offset int64, metadata string) int16 {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, offset, -1, &metadata
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return c.do(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

// committedOffset is what OffsetFetch says of one partition.
func (c *client) committedOffset(group, topic string, partition int32) int64 {
	c.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, rt)
	resp := c.do(req).(*kmsg.OffsetFetchResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("fetch: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	return resp.Topics[0].Partitions[0].Offset
}

// The group's part of BUG-041: what was acknowledged is there after the broker and its coordinator have started anew.
func TestCommitsAreThereAfterARestart(t *testing.T) {
	kv, dir := memkv.New(), t.TempDir()
	w := groupWorld(t, settings{kv: kv, dir: dir}, nil)
	w.topic("t", 3, nil)
	c := w.dial()
	w.ready(c, "g")
	for p, off := range []int64{25, 15, 20} {
		want(t, "commit", c.commitOffset("g", "t", int32(p), off, ""), 0)
	}
	want(t, "commit", c.commitOffset("gone", "t", 0, 1, ""), 0)
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"gone"}
	want(t, "delete", c.do(del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, 0)
	w.stop()

	w = groupWorld(t, settings{kv: kv, dir: dir}, nil)
	c = w.dial()
	w.ready(c, "g")
	w.ready(c, "gone")
	for p, off := range []int64{25, 15, 20} {
		if got := c.committedOffset("g", "t", int32(p)); got != off {
			t.Errorf("partition %d: %d, want %d", p, got, off)
		}
	}
	desc := kmsg.NewPtrDescribeGroupsRequest()
	desc.Version, desc.Groups = 6, []string{"gone", "g"}
	d := c.do(desc).(*kmsg.DescribeGroupsResponse)
	want(t, "deleted group", d.Groups[0].ErrorCode, kerr.GroupIDNotFound.Code)
	if d.Groups[1].State != "Empty" {
		t.Errorf("group: %+v", d.Groups[1])
	}
}

// BUG-040 over the wire: no offset survives its topic, and a new topic of the name starts without.
func TestOffsetsDoNotSurviveTheirTopic(t *testing.T) {
	kv, dir := memkv.New(), t.TempDir()
	w := groupWorld(t, settings{kv: kv, dir: dir}, nil)
	w.topic("a", 1, nil)
	c := w.dial()
	w.ready(c, "g")
	want(t, "commit", c.commitOffset("g", "a", 0, 10, ""), 0)
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TopicNames, del.TimeoutMillis = 5, []string{"a"}, 5000
	want(t, "delete topic", c.do(del).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, 0)
	if got := c.committedOffset("g", "a", 0); got != -1 {
		t.Errorf("straight after the deletion: %d, want -1", got)
	}
	want(t, "commit to a deleted topic", c.commitOffset("g", "a", 0, 10, ""), kerr.UnknownTopicOrPartition.Code)
	w.topic("a", 1, nil)
	if got := c.committedOffset("g", "a", 0); got != -1 {
		t.Errorf("of the new topic: %d, want -1", got)
	}
	want(t, "commit", c.commitOffset("g", "a", 0, 3, ""), 0)
	w.stop()
	w = groupWorld(t, settings{kv: kv, dir: dir}, nil)
	c = w.dial()
	w.ready(c, "g")
	if got := c.committedOffset("g", "a", 0); got != 3 {
		t.Errorf("after a restart: %d, want 3", got)
	}
}

func TestOffsetDelete(t *testing.T) {
	w := groupWorld(t, settings{}, nil)
	w.topic("t", 2, nil)
	c := w.dial()
	w.ready(c, "g")
	want(t, "commit", c.commitOffset("g", "t", 0, 10, ""), 0)
	want(t, "commit", c.commitOffset("g", "t", 1, 11, ""), 0)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	for _, name := range []string{"none", "t"} {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = name
		for _, p := range []int32{9, 1} {
			rp := kmsg.NewOffsetDeleteRequestTopicPartition()
			rp.Partition = p
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := c.do(req).(*kmsg.OffsetDeleteResponse)
	want(t, "request", resp.ErrorCode, 0)
	want(t, "no topic", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition.Code)
	want(t, "no partition", resp.Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition.Code)
	want(t, "partition", resp.Topics[1].Partitions[1].ErrorCode, 0)
	if a, b := c.committedOffset("g", "t", 0), c.committedOffset("g", "t", 1); a != 10 || b != -1 {
		t.Errorf("offsets %d and %d, want 10 and -1", a, b)
	}
	req.Group = "none"
	want(t, "no group", c.do(req).(*kmsg.OffsetDeleteResponse).ErrorCode, kerr.GroupIDNotFound.Code)
	req.Group = ""
	want(t, "group without a name", c.do(req).(*kmsg.OffsetDeleteResponse).ErrorCode, kerr.InvalidGroupID.Code)
}

func TestGroupRequestsAreRefusedAsKafkaDoes(t *testing.T) {
	w := groupWorld(t, settings{}, map[string]string{"group.min.session.timeout.ms": "20000", "offset.metadata.max.bytes": "10"})
	w.topic("t", 1, nil)
	c := w.dial()
	if j := c.joinGroup(9, "g", "", nil); j.ErrorCode != kerr.NotCoordinator.Code {
		t.Errorf("join before there is a coordinator: %+v", j)
	}
	w.ready(c, "g")
	j := c.joinGroup(9, "g", "", nil)
	want(t, "session too short", j.ErrorCode, kerr.InvalidSessionTimeout.Code)
	if j.Generation != -1 || j.Protocol != nil || j.ProtocolType != nil {
		t.Errorf("refused join: %+v", j)
	}
	if old := c.joinGroup(2, "g", "", nil); old.Protocol == nil || *old.Protocol != "" {
		t.Errorf("refused join in v2: %+v", old)
	}
	want(t, "metadata too long", c.commitOffset("g", "t", 0, 1, "12345678901"), kerr.OffsetMetadataTooLarge.Code)
	want(t, "metadata", c.commitOffset("g", "t", 0, 1, "1234567890"), 0)
	want(t, "leave of no group", c.leaveAll("").ErrorCode, kerr.InvalidGroupID.Code)
}

func (c *client) leaveAll(group string) *kmsg.LeaveGroupResponse {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, group
	return c.do(req).(*kmsg.LeaveGroupResponse)
}

// The files of the topic are what Kafka's tools read: batches of records with Kafka's keys and values.
func TestOffsetsTopicIsReadableAsKafkas(t *testing.T) {
	w := groupWorld(t, settings{}, map[string]string{"offsets.topic.num.partitions": "1"})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	w.ready(c, "g")
	want(t, "commit", c.commitOffset("g", "t", 0, 42, "m"), 0)
	resp := c.do(fetchReq(13, w.store.Image().Topics[offsetsTopic], 0, 0)).(*kmsg.FetchResponse)
	raw := resp.Topics[0].Partitions[0].RecordBatches
	key := kmsg.NewOffsetCommitKey()
	key.Version, key.Group, key.Topic = 1, "g", "t"
	val := kmsg.NewOffsetCommitValue()
	val.Version, val.Offset, val.LeaderEpoch, val.Metadata, val.TopicID = 4, 42, -1, "m", topic.ID
	b := val.AppendTo(nil)
	if !bytes.Contains(raw, key.AppendTo(nil)) || !bytes.Contains(raw, b[:14]) {
		t.Errorf("log: %x\nwant key %x and value %x", raw, key.AppendTo(nil), b)
	}
}

func TestOffsetsTopicHasAsManyReplicasAsTheClusterIsMeantToHave(t *testing.T) {
	brokers := func(ids ...int32) *meta.Image {
		img := &meta.Image{Known: map[int32]*meta.Broker{}}
		for _, id := range ids {
			img.Known[id] = &meta.Broker{ID: id}
		}
		return img
	}
	three := map[string]string{"etcd.initial.cluster": "1@a:1:2,2@b:1:2,3@c:1:2"}
	for _, c := range []struct {
		name  string
		props map[string]string
		img   *meta.Image
		want  int16
	}{
		{"alone", map[string]string{"etcd.embedded": "true"}, brokers(1), 1},
		{"first of three", three, brokers(1), 3},
		{"all of three", three, brokers(1, 2, 3), 3},
		{"external etcd, first broker", map[string]string{"etcd.endpoints": "a:1"}, brokers(1), 3},
		{"as told", map[string]string{"etcd.endpoints": "a:1", "offsets.topic.replication.factor": "1"}, brokers(1, 2), 1},
		{"more brokers than replicas", three, brokers(1, 2, 3, 4, 5), 3},
	} {
		conf, _, err := config.New(c.props)
		if err != nil {
			t.Fatal(err)
		}
		if got := offsetsReplication(conf, c.img); got != c.want {
			t.Errorf("%s: %d replicas, want %d", c.name, got, c.want)
		}
	}
}
