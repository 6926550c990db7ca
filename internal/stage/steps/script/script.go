// Package script has the shell scripts that the stages run in sandboxes. They take
// what they need as arguments, and files from the inbox, /tmp/cofferdam-in, which is
// moved away first of all; what they leave is still a sandbox's word.
package script

// The exit codes of scripts that say more than that something failed.
const (
	AskMissing   = 46 // Ask: the repository asks for nothing
	RefMissing   = 44 // Checkout: the ref was not found
	PatchRefused = 45 // VerifyApply: the patch does not apply
)

// Checkout clones $1 and checks $2 out, and leaves a bundle of that
// commit. A branch wins over a tag, a tag over a commit. $2 empty: HEAD.
const Checkout = `set -eu
source=$1 ref=$2
mkdir -p /tmp/cofferdam-work
if [ -d /tmp/cofferdam-in ]; then mv /tmp/cofferdam-in /tmp/cofferdam-work/in; fi
git -c core.hooksPath=/dev/null clone --quiet --no-checkout -- "$source" /workspace
cd /workspace
if [ -z "$ref" ]; then set -- HEAD refs/remotes/origin/HEAD
else set -- "refs/remotes/origin/$ref" "refs/tags/$ref" "$ref"; fi
commit=
for name in "$@"; do
  if commit=$(git rev-parse --verify --quiet --end-of-options "$name^{commit}"); then break; fi
  commit=
done
if [ -z "$commit" ]; then exit 44; fi
git -c core.hooksPath=/dev/null -c advice.detachedHead=false checkout --quiet --detach "$commit"
` + shapes + `
git remote remove origin
git config user.name 'Cofferdam agent'
git config user.email agent@cofferdam.invalid
git update-ref refs/heads/cofferdam-base "$commit"
git bundle create --quiet /tmp/cofferdam-work/base.bundle refs/heads/cofferdam-base
git update-ref -d refs/heads/cofferdam-base
`

// shapes looks at what a plain clone leaves out, of the commit that was
// checked out. Pointers of Git LFS stay: nothing asks its server. Submodules
// are fetched by https alone, each by itself, as far as the stage may reach them,
// and are packed so that verify has the same. What was found is counted.
const shapes = `lfs=0 modules=0 missing=0
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
    tar --exclude=.git -cf /tmp/cofferdam-work/modules.tar --null --verbatim-files-from -T /tmp/cofferdam-work/modules
  fi
fi
printf '%d %d %d' "$lfs" "$modules" "$missing" > /tmp/cofferdam-work/shapes
`

// Ask writes the repository's request: a blob of the checked-out commit,
// as it is, so that no filter, attribute or link of the repository has a say.
// One byte more than is taken shows that it is too long.
const Ask = `cd /workspace || exit 46
blob=$(git rev-parse --verify --quiet --end-of-options "$1:.cofferdam/task.yaml") || exit 46
test "$(git cat-file -t "$blob" 2>/dev/null)" = blob || exit 46
git cat-file blob "$blob" 2>/dev/null | head -c 65537
`

// Modules takes from submodules' configurations what git writes again at
// each update although it knows it: once they are read-only, updates would fail.
// It runs what setup left and may do anything; the protection comes after it.
const Modules = `cd /workspace && [ -e .gitmodules ] || exit 0
git submodule --quiet foreach --recursive 'git config --unset core.worktree || :' || :
`

// Index keeps git from calling paths changed that the workload can't see.
const Index = `cd /workspace && git --literal-pathspecs ls-files -z -- "$@" | git update-index -z --skip-worktree --stdin || :
`

// Export adds the files in tree/ to an index of $1, and lists them first
// where $2 is not empty. The files are the agent's; the repository, its
// configuration and its hooks are not. A submodule came without its repository
// and would be taken for plain files: it stays as the base has it.
const Export = `set -eu
work=/tmp/cofferdam-work
mv /tmp/cofferdam-in "$work"
mkdir -p "$work/tree" "$work/out"
if [ -n "$2" ]; then find "$work/tree" -mindepth 1 \( -type f -printf 'f %s %P\0' -o -type l -printf 'l 0 %P\0' \) > "$work/out/list"; fi
git clone --quiet --no-checkout --branch cofferdam-base "$work/base.bundle" "$work/repo"
export GIT_DIR="$work/repo/.git" GIT_WORK_TREE="$work/tree"
cd "$work/tree"
git read-tree "$1"
git ls-files --stage -z | sed -z -n 's/^160000 [^\t]*\t//p' | xargs -0 -r sh -c 'for p do if [ -d "$p" ] && [ ! -L "$p" ]; then rm -rf -- "$p"; mkdir -- "$p"; fi; done' clear
git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.attributesFile=/dev/null -c core.excludesFile=/dev/null add --all -- .
git diff --cached --name-only --no-renames --no-ext-diff -z "$1" > "$work/out/names"
`

// Patch makes the patch after what may not be in it was put back as it was:
// the names in strip.
const Patch = `set -eu
work=/tmp/cofferdam-work
export GIT_DIR="$work/repo/.git" GIT_WORK_TREE="$work/tree"
cd "$work/tree"
if [ -f /tmp/cofferdam-in/strip ]; then
  mv /tmp/cofferdam-in/strip "$work/strip"
  git --literal-pathspecs reset --quiet "$1" --pathspec-from-file="$work/strip" --pathspec-file-nul
fi
git diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$1" > "$work/out/patch"
git diff --cached --name-only --no-renames --no-ext-diff -z "$1" > "$work/out/names"
`

// Pack packs the files whose names are in the inbox. They lie in a place
// where nothing runs, so they are what they were when they were listed. Nothing
// is followed: a link that was listed as a file can't be.
const Pack = `set -eu
work=/tmp/cofferdam-work
rm -rf "$work/wanted"
mv /tmp/cofferdam-in "$work/wanted"
tar -C "$work/tree" --no-recursion --hard-dereference --format=posix --null --verbatim-files-from -T "$work/wanted/names" -cf "$work/out/kept.tar"
`

// Bundle makes one commit of the patch's index upon $1, on the branch $2,
// and a bundle of it. The same index gives the same commit.
const Bundle = `set -eu
work=/tmp/cofferdam-work
export GIT_DIR="$work/repo/.git"
name='Cofferdam agent' mail=agent@cofferdam.invalid
export GIT_AUTHOR_NAME="$name" GIT_AUTHOR_EMAIL="$mail" GIT_COMMITTER_NAME="$name" GIT_COMMITTER_EMAIL="$mail"
export GIT_AUTHOR_DATE="@$3 +0000" GIT_COMMITTER_DATE="@$3 +0000"
commit=$(git commit-tree "$(git write-tree)" -p "$1" -m "$4" -m "Cofferdam-Task: $5")
git update-ref "$2" "$commit"
git -c pack.threads=1 bundle create --quiet "$work/out/bundle" "$2" "^$1"
`

// VerifyCheckout checks $1 out of the base bundle in the inbox.
const VerifyCheckout = `set -eu
mv /tmp/cofferdam-in /tmp/cofferdam-base
git clone --quiet --no-checkout --branch cofferdam-base /tmp/cofferdam-base/base.bundle /workspace
cd /workspace
git -c core.hooksPath=/dev/null -c advice.detachedHead=false checkout --quiet --detach "$1"
git branch --quiet -D cofferdam-base
git remote remove origin
git config user.name 'Cofferdam verify'
git config user.email verify@cofferdam.invalid
if [ -f /tmp/cofferdam-base/modules.tar ]; then tar -C /workspace -xf /tmp/cofferdam-base/modules.tar; fi
rm -rf /tmp/cofferdam-base
`

// VerifyApply brings the workspace to the commit $1 plus the patch in
// the inbox. The patch meets a clean index: what setup made of tracked files
// or left where the patch makes a file gives way to the patch, which was made
// from a workspace that had the same setup.
const VerifyApply = `set -eu
mv /tmp/cofferdam-in /tmp/cofferdam-patch
cd /workspace
g="git -c core.hooksPath=/dev/null -c core.fsmonitor=false"
$g reset --quiet --hard "$1"
export GIT_INDEX_FILE=/tmp/cofferdam-patch/index
$g read-tree "$1"
$g apply --cached --binary --whitespace=nowarn /tmp/cofferdam-patch/patch || exit 45
tree=$($g write-tree)
unset GIT_INDEX_FILE
$g read-tree --reset -u "$tree"
rm -rf /tmp/cofferdam-patch
`
