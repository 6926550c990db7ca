package task

// Flag is a kind of thing in a task's patch that may bite whoever takes it. Policy
// speaks of kinds; a Finding is one place of one kind.
type Flag string

// The kinds. What they mean stands in FlagKinds.
const (
	FlagUnreadable Flag = "unreadable"
	FlagPath       Flag = "path"
	FlagSecret     Flag = "secret"
	FlagLink       Flag = "link"
	FlagGit        Flag = "git"
	FlagWorkflow   Flag = "workflow"
	FlagEditor     Flag = "editor"
	FlagAgent      Flag = "agent"
	FlagBuild      Flag = "build"
	FlagText       Flag = "text"
	FlagName       Flag = "name"
	FlagLimit      Flag = "limit"
	FlagBinary     Flag = "binary"
	FlagBulk       Flag = "bulk"
	FlagLicence    Flag = "licence"
	FlagMode       Flag = "mode"
)

// FlagVerdict is what a kind of finding means for the task. The zero value
// refuses.
type FlagVerdict string

// The verdicts, the strictest first.
const (
	FlagRefuse  FlagVerdict = "refuse"  // the task ends, its patch is kept as evidence
	FlagApprove FlagVerdict = "approve" // nothing outside is done with the patch before a person saw it
	FlagAllow   FlagVerdict = "allow"   // it is told
)

// FlagVerdicts are the words of files, the strictest first.
func FlagVerdicts() []string {
	return []string{string(FlagRefuse), string(FlagApprove), string(FlagAllow)}
}

// Looser says whether v lets more through than other.
func (v FlagVerdict) Looser(other FlagVerdict) bool { return v.rank() > other.rank() }

func (v FlagVerdict) rank() int {
	switch v {
	case FlagAllow:
		return 2
	case FlagApprove:
		return 1
	case FlagRefuse:
	}
	return 0
}

// FlagKind is what there is to know of a kind.
type FlagKind struct {
	Flag     Flag
	Severity string      // "high", "medium", "low"
	Verdict  FlagVerdict // where no policy says otherwise
	What     string
}

// FlagKinds are all kinds, the worst first.
func FlagKinds() []FlagKind {
	return []FlagKind{
		{FlagUnreadable, "high", FlagRefuse, "the patch isn't as git writes patches, so nobody can say what it changes"},
		{FlagPath, "high", FlagRefuse, "a name that git or a file system may take for .git or for a place outside of the tree"},
		{FlagSecret, "high", FlagApprove, "what looks like a key or a password"},
		{FlagLink, "high", FlagApprove, "a link that leads out of the tree or into .git, or a file behind a link"},
		{FlagGit, "high", FlagApprove, "what git runs or follows: hooks, drivers, submodules"},
		{FlagWorkflow, "high", FlagApprove, "what runs in CI, deploys, or decides who must review"},
		{FlagEditor, "high", FlagApprove, "what editors and shells run when the folder is opened or entered"},
		{FlagAgent, "high", FlagApprove, "what coding agents run or obey"},
		{FlagText, "high", FlagApprove, "text that reads otherwise than it is: direction marks, invisible characters, letters that look alike"},
		{FlagBuild, "medium", FlagApprove, "what runs when the project is installed, built or tested"},
		{FlagName, "medium", FlagApprove, "a name that can't be shown as it is, or that is the same as another where case or accents don't count"},
		{FlagLimit, "medium", FlagApprove, "a part of the patch that was not looked at"},
		{FlagLicence, "medium", FlagApprove, "under which terms the code stands"},
		{FlagBulk, "low", FlagApprove, "more than a person reads"},
		{FlagBinary, "low", FlagApprove, "bytes that can't be reviewed by reading"},
		{FlagMode, "low", FlagAllow, "a file that may be executed from now on"},
	}
}

// FlagKindOf is the kind, and whether there is one.
func FlagKindOf(f Flag) (FlagKind, bool) {
	for _, k := range FlagKinds() {
		if k.Flag == f {
			return k, true
		}
	}
	return FlagKind{}, false
}

// FlagRules are what policy says of kinds, where it says something.
type FlagRules map[Flag]FlagVerdict

// Verdict is what the kind means; one that is unknown is refused.
func (r FlagRules) Verdict(f Flag) FlagVerdict {
	k, known := FlagKindOf(f)
	switch v, said := r[f]; {
	case !known:
		return FlagRefuse
	case said:
		return v
	default:
		return k.Verdict
	}
}

// Finding is one thing in a patch that may bite. Nothing in it is taken from the
// patch but the path.
type Finding struct {
	ID       string      `json:"id"` // the kind, and what of it: "workflow.github"
	Flag     Flag        `json:"flag"`
	Severity string      `json:"severity"`
	Verdict  FlagVerdict `json:"verdict"`
	// Path is printable: a name with anything else in it stands in quotes, with
	// escapes, as git writes it. Empty: the patch as a whole.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"` // of the new file, or of the patch where it can't be read; 0: none
	Why  string `json:"why"`            // one sentence
}

// FlagReport is what was found in a patch.
type FlagReport struct {
	Findings []Finding   // the worst first; at most as many as are kept
	More     int         // findings that are not kept
	Flags    []Flag      // the kinds of all of them, the worst first
	Verdict  FlagVerdict // the strictest of all of them; allow when there are none
}
