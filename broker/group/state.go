package group

// State of a group; its String is Kafka's name.
type State uint8

const (
	Empty               State = iota // no members; offsets perhaps
	PreparingRebalance               // waits for members to join
	CompletingRebalance              // waits for the leader's assignment
	Stable
	Dead // gone; never a state of a group that is kept
)

var stateNames = [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}

func (s State) String() string { return stateNames[s] }
