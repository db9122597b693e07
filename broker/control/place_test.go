package control

import (
	"errors"
	"fmt"
	"testing"

	"github.com/varvelog/varve/meta"
)

func image(racks ...string) *meta.Image {
	img := &meta.Image{Brokers: map[int32]*meta.Broker{}, Topics: map[string]*meta.Topic{}}
	for i, r := range racks {
		img.Brokers[int32(i+1)] = &meta.Broker{ID: int32(i + 1), Rack: r}
	}
	return img
}

func TestPlaceSpreadsLeadersAndReplicasEvenly(t *testing.T) {
	got, err := Place(image("", "", ""), 9, 2)
	if err != nil {
		t.Fatal(err)
	}
	leaders, replicas := map[int32]int{}, map[int32]int{}
	for _, rs := range got {
		if len(rs) != 2 || rs[0] == rs[1] {
			t.Fatalf("replicas %v", rs)
		}
		leaders[rs[0]]++
		for _, r := range rs {
			replicas[r]++
		}
	}
	for id := int32(1); id <= 3; id++ {
		if leaders[id] != 3 || replicas[id] != 6 {
			t.Fatalf("leaders %v, replicas %v", leaders, replicas)
		}
	}
}

func TestPlaceKeepsReplicasInDifferentRacks(t *testing.T) {
	img := image("a", "a", "b", "b")
	got, err := Place(img, 8, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, rs := range got {
		if img.Brokers[rs[0]].Rack == img.Brokers[rs[1]].Rack {
			t.Fatalf("%v are in one rack", rs)
		}
	}
}

func TestPlaceCountsWhatBrokersHave(t *testing.T) {
	img := image("", "")
	img.Topics["x"] = &meta.Topic{Partitions: []*meta.Partition{{Replicas: []int32{1}}, {Replicas: []int32{1}}}}
	got, err := Place(img, 2, 1)
	if err != nil || fmt.Sprint(got) != "[[2] [2]]" {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestPlaceTakesBrokersThatAreAwayLastAndNeverFirst(t *testing.T) {
	img := image("", "", "")
	img.Known = map[int32]*meta.Broker{}
	for id, b := range img.Brokers {
		img.Known[id] = b
	}
	delete(img.Brokers, 1)
	got, err := Place(img, 2, 2)
	if err != nil || fmt.Sprint(got) != "[[2 3] [3 2]]" {
		t.Fatalf("%v, %v", got, err)
	}
	got, err = Place(img, 2, 3)
	if err != nil || fmt.Sprint(got) != "[[2 3 1] [3 2 1]]" {
		t.Fatalf("%v, %v", got, err)
	}
	img.Brokers[2].Draining, img.Brokers[3].Fenced = true, true
	if got, err = Place(img, 1, 1); !errors.Is(err, ErrTooFewBrokers) {
		t.Fatalf("nobody lives: %v, %v", got, err)
	}
	img.Brokers[3].Fenced = false
	got, err = Place(img, 2, 3)
	if err != nil || fmt.Sprint(got) != "[[3 1 2] [3 1 2]]" {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestPlaceRefusesMoreReplicasThanBrokers(t *testing.T) {
	img := image("", "")
	img.Brokers[2].Fenced = true
	if _, err := Place(img, 1, 3); !errors.Is(err, ErrTooFewBrokers) {
		t.Fatal(err)
	}
	if _, err := Place(img, 1, 0); !errors.Is(err, ErrTooFewBrokers) {
		t.Fatal(err)
	}
}
