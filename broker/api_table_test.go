package broker

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The documented versions are the ones that ApiVersions advertises.
func TestDocumentedMessagesAreTheServedOnes(t *testing.T) {
	doc, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, cell := range regexp.MustCompile(`\| ([A-Z]\w+) \| ([0-9-]+)`).FindAllStringSubmatch(string(doc), -1) {
		documented[strings.ToLower(cell[1])] = cell[2]
	}
	served := map[string]string{}
	for key, a := range apiTable() {
		name := strings.ToLower(key.Name())
		if name == "alterpartitionassignments" { // kmsg's name
			name = "alterpartitionreassignments"
		}
		if served[name] = fmt.Sprintf("%d-%d", a.min, a.max); a.min == a.max {
			served[name] = fmt.Sprint(a.min)
		}
	}
	for name, versions := range served {
		if documented[name] != versions {
			t.Errorf("%s: served %s, documented %q", name, versions, documented[name])
		}
	}
	for name := range documented {
		if served[name] == "" {
			t.Errorf("%s is documented and not served", name)
		}
	}
}
