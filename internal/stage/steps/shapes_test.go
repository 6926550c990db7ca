package steps

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const pointer = `version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
`

// Without its server, what Git LFS keeps elsewhere stays a pointer, also in the
// patch, and nobody calls git-lfs.
func TestLFSPointersStay(t *testing.T) {
	h := newHouse(t, task.Spec{Agent: shell("grep -q git-lfs big.bin; echo x > other"), Verify: "grep -q git-lfs big.bin"})
	h.task.Spec.Repo.Bundle = h.repository(fmt.Sprintf("printf 'sub/* text\\n*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes; printf '%%s' '%s' > big.bin; git add . && git commit -qm one", pointer))
	o := h.through(task.Act, 1)
	succeeds(t, o)
	if flags := h.outputOf("base").Flags; !slices.Contains(flags, flagLFS) {
		t.Errorf("the base has flags %v", flags)
	}
	if text := h.textOf(task.Checkout); !strings.Contains(text, "1 files of Git LFS are pointers") {
		t.Errorf("checkout says %q", text)
	}
	if patch := h.bytes("patch"); strings.Contains(patch, "big.bin") {
		t.Errorf("the patch has the pointer:\n%s", patch)
	}
}

// A submodule that can't be fetched is an empty folder and said; neither it nor
// what the agent puts there is in the patch.
func TestSubmodulesThatCannotBeFetched(t *testing.T) {
	h := newHouse(t, task.Spec{Agent: shell("mkdir -p lib; echo vendored > lib/code; echo x > other")})
	h.task.Spec.Repo.Bundle = h.repository(`echo a > a; git add .; git commit -qm one; id=$(git rev-parse HEAD)
printf '[submodule "lib"]\n\tpath = lib\n\turl = https://127.0.0.1:1/none\n[submodule "odd"]\n\tpath = odd\n\turl = ../elsewhere\n' > .gitmodules
git update-index --add --cacheinfo 160000,$id,lib --add --cacheinfo 160000,$id,odd; git add .gitmodules; git commit -qm two`)
	succeeds(t, h.through(task.Act, 1))
	if flags := h.outputOf("base").Flags; !slices.Equal(flags, []string{flagMissing}) {
		t.Errorf("the base has flags %v", flags)
	}
	if text := h.textOf(task.Checkout); !strings.Contains(text, "2 submodules are empty") || !strings.Contains(text, "checkout.network") {
		t.Errorf("checkout says %q", text)
	}
	if patch := h.bytes("patch"); strings.Contains(patch, "lib") || !strings.Contains(patch, "other") {
		t.Errorf("the patch:\n%s", patch)
	}
}

// Shapes of repositories that are sent as bundles go through every stage.
func TestShapesOfRepositories(t *testing.T) {
	for name, script := range map[string]string{
		"sha256": `rm -rf .git; git init -q -b main --object-format=sha256 .; git config user.name T; git config user.email t@t.invalid; echo broken > answer; git add .; git commit -qm one`,
		"signed": `echo broken > answer; git add .; tree=$(git write-tree)
printf 'tree %s\nauthor T <t@t.invalid> 1 +0000\ncommitter T <t@t.invalid> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nsigned\n' "$tree" > ../c; git update-ref HEAD "$(git hash-object -t commit -w ../c)"`,
		"worktree": `echo old > answer; git add .; git commit -qm one; git worktree add -q ../tree; cd ../tree; echo broken > answer; git commit -qam two; git update-ref refs/heads/main HEAD; cd ../repo`,
		"sparse":   `mkdir a b; echo broken > answer; echo x > b/x; echo y > a/y; git add .; git commit -qm one; git sparse-checkout set a`,
		"bytes":    `echo broken > answer; echo 1 > "$(printf 'odd\377\033')"; git add .; git commit -qm one`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, task.Spec{Agent: shell("echo fixed > answer; git status --short; git commit -qam fixed"), Verify: "grep fixed answer"})
			h.task.Spec.Repo.Bundle = h.repository(script)
			succeeds(t, h.through(task.Act, 1))
			if patch := h.bytes("patch"); !strings.Contains(patch, "+fixed") || strings.Contains(patch, "odd") {
				t.Errorf("the patch:\n%s", patch)
			}
			if len(h.bytes("bundle")) == 0 {
				t.Error("no bundle")
			}
		})
	}
}
