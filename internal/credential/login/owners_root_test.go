//go:build root

package login_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What root makes in a person's folder is the person's.
func TestOwners(t *testing.T) {
	eachTool(t, time.Minute, func(t *testing.T, r *rig) {
		for _, p := range []string{r.file, filepath.Dir(r.file)} {
			must(t, os.Chown(p, 4711, 4712))
		}
		if _, err := r.mint(); err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadDir(filepath.Dir(r.file))
		must(t, err)
		for _, e := range list {
			info, err := e.Info()
			must(t, err)
			if s := info.Sys().(*syscall.Stat_t); s.Uid != 4711 || s.Gid != 4712 {
				t.Errorf("%s belongs to %d:%d", e.Name(), s.Uid, s.Gid)
			}
		}
		must(t, os.Chown(r.file, 4713, 4712))
		if _, err := r.mint(); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Error(err)
		}
	})
}
