package keeper

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/internal/egress/names"
)

const journalID = "sb-aaaaaaaaaaaaaaaa"

// A name that is stored by two calls at one time stands once in the journal, or
// the next gateway refuses the sandbox.
func TestNameStoredTwiceAtOnce(t *testing.T) {
	dir := t.TempDir()
	j, err := newJournal(dir, journalID)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		for range 4 {
			wg.Go(func() {
				if err := j.addName(names.Entry{Name: fmt.Sprintf("n%d.test", i), Index: i}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	j.close()
	loadNames(t, dir, 20)
	text, err := os.ReadFile(journalPath(dir, journalID))
	if err != nil || strings.Count(string(text), "\n") != 21 {
		t.Errorf("the journal is %v\n%s", err, text)
	}
}

// One that an earlier program wrote twice is read as once.
func TestNameWrittenTwice(t *testing.T) {
	dir := t.TempDir()
	j, err := newJournal(dir, journalID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.append(line{Name: &names.Entry{Name: "a.test"}}); err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	loadNames(t, dir, 1)
}

// loadNames reads the journal again and restores its names as a gateway does.
func loadNames(t *testing.T, dir string, want int) {
	t.Helper()
	j, err := loadJournal(dir, journalID)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	_, _, list := j.state()
	if err := names.New(100).Restore(list); err != nil || len(list) != want {
		t.Errorf("%d names, %v", len(list), err)
	}
}
