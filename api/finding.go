package api

// Finding is one thing in a patch that may bite who takes it.
type Finding struct {
	ID       string `json:"id" doc:"The kind, and what of it, such as workflow.github."`
	Flag     string `json:"flag" doc:"The kind; policy speaks of kinds."`
	Severity string `json:"severity" doc:"high, medium or low."`
	Verdict  string `json:"verdict" doc:"What the policy says of the kind: allow, approve or refuse."`
	Path     string `json:"path,omitempty" doc:"Printable: a name with anything else in it stands in quotes, with escapes, as git writes it. Empty: the patch as a whole."`
	Line     int    `json:"line,omitempty" doc:"Of the new file; of the patch where it can't be read."`
	Why      string `json:"why" doc:"One sentence."`
}
