package steps

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Flags of the base.
const (
	flagLFS     = "lfs-pointers"     // files of Git LFS are pointers, as they are in the repository
	flagModules = "submodules"       // submodules were fetched
	flagMissing = "submodules-empty" // some could not be, and are empty folders
)

// shapesScript looks at what a plain clone leaves out, of the commit that was
// checked out. Pointers of Git LFS stay: nothing asks its server. Submodules
// are fetched by https alone, each by itself, as far as the stage may reach them,
// and are packed so that verify has the same. What was found is counted.
const shapesScript = `lfs=0 modules=0 missing=0
if git -c core.quotePath=true grep --quiet --fixed-strings -e filter=lfs "$commit" -- .gitattributes '**/.gitattributes'; then
  lfs=$(git grep --files-with-matches -I -e '^version https://git-lfs.github.com/spec/v1$' "$commit" -- | wc -l)
fi
git ls-files --stage -z | sed -z -n 's/^160000 [^	]*	//p' > /tmp/cofferdam-work/gitlinks
if [ -s /tmp/cofferdam-work/gitlinks ]; then
  : > /tmp/cofferdam-work/modules
  count() { tr -dc '\0' < "$1" | wc -c; }
  xargs -0 -r -n 1 sh -c '
    if git -c protocol.allow=never -c protocol.https.allow=always -c core.hooksPath=/dev/null -c credential.helper= submodule update --quiet --init --recursive -- "$0" < /dev/null; then
      printf "%s\0" "$0" >> /tmp/cofferdam-work/modules
    else
      git submodule deinit --quiet --force -- "$0" < /dev/null > /dev/null 2>&1 || :
    fi' < /tmp/cofferdam-work/gitlinks
  modules=$(count /tmp/cofferdam-work/modules)
  missing=$(( $(count /tmp/cofferdam-work/gitlinks) - modules ))
  if [ "$modules" -gt 0 ]; then
    tar --null --verbatim-files-from -T /tmp/cofferdam-work/modules --exclude=.git -cf /tmp/cofferdam-work/modules.tar
  fi
fi
printf '%d %d %d' "$lfs" "$modules" "$missing" > /tmp/cofferdam-work/shapes
`

// shapes is what was found.
type shapes struct{ lfs, modules, missing int }

func (s shapes) flags() []string {
	var flags []string
	for _, f := range []struct {
		n    int
		name string
	}{{s.lfs, flagLFS}, {s.modules, flagModules}, {s.missing, flagMissing}} {
		if f.n > 0 {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// shapes reads what the script counted and tells it in the stage's text.
func (r *run) shapes(ctx context.Context) (shapes, error) {
	var text []byte
	err := r.getFile(ctx, "/tmp/cofferdam-work/shapes", func(from io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(from, 100))
		return err
	})
	if err != nil {
		return shapes{}, err
	}
	var s shapes
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return s, task.Fail(task.CheckoutFailed, "what was checked out could not be looked at", nil)
	}
	for i, to := range []*int{&s.lfs, &s.modules, &s.missing} {
		if *to, err = strconv.Atoi(fields[i]); err != nil || *to < 0 {
			return s, task.Fail(task.CheckoutFailed, "what was checked out could not be looked at", err)
		}
	}
	if s.lfs > 0 {
		r.note(fmt.Sprintf("%d files of Git LFS are pointers (%s); their contents are not fetched", s.lfs, flagLFS))
	}
	if s.missing > 0 {
		r.note(fmt.Sprintf("%d submodules are empty (%s): they have no https URL, or checkout may not reach it; allow it in the policy's checkout.network", s.missing, flagMissing))
	}
	return s, nil
}

// keepModules keeps the files of the submodules for verify.
func (r *run) keepModules(ctx context.Context, s shapes) error {
	if s.modules == 0 {
		return nil
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/modules.tar", func(from io.Reader) error {
		_, err := r.keep(ctx, "base.modules", "base", from, maxBase)
		return err
	})
}
