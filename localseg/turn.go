package localseg

// turn lets one caller at a time do I/O. It is a channel, not a mutex: waiting for it is waiting for a disk, and must
// be seen as blocked by a simulated clock.
type turn chan struct{}

func newTurn() turn  { return make(turn, 1) }
func (t turn) take() { t <- struct{}{} }
func (t turn) give() { <-t }
