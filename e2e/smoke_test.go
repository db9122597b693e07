package e2e

import "testing"

func TestSmoke(t *testing.T) {
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 2, "segment.bytes", "1048576", "local.retention.bytes", "1")
	d := c.fill("a", 2, 5000, 1000)
	c.untilTiered("a", 0, 2500)
	c.untilEvicted("a", 0, 1)
	c.same("a", d)
	n.stop()
	n.start()
	c.same("a", d)
	n.Kill()
	n.start()
	c.same("a", d)
}
