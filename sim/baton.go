package sim

// baton is a mutex that may be held over a sleep: who waits for it lets a bubble's time go on.
type baton chan struct{}

func newBaton() baton { return make(baton, 1) }

func (b baton) Lock()   { b <- struct{}{} }
func (b baton) Unlock() { <-b }

func (b baton) TryLock() bool {
	select {
	case b <- struct{}{}:
		return true
	default:
		return false
	}
}
