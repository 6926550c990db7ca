package supervise

import "fmt"

// The codes of faults; what they mean for an exit code is the caller's matter.
const (
	CodeMachine  = "infra.machine"   // the machine lacks something, or holds something that is in the way
	CodeStorage  = "infra.storage"   // no room on the disk, or a file that can't be written
	CodeProgram  = "infra.internal"  // a program of ours does not start
	CodeInvalid  = "input.invalid"   // an option is wrong
	CodeConflict = "input.conflict"  // the installation runs already
	CodeNotFound = "input.not_found" // there is no installation there
)

// Fault is a failure told to a person: a code, what happened, and what to do.
type Fault struct {
	Code string
	Text string
	Err  error
}

// Error gives the text and the cause.
func (f *Fault) Error() string {
	if f.Err != nil {
		return f.Text + ": " + f.Err.Error()
	}
	return f.Text
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

func fault(code, format string, args ...any) *Fault {
	return &Fault{Code: code, Text: fmt.Sprintf(format, args...)}
}

func faultOf(code string, err error, format string, args ...any) *Fault {
	return &Fault{Code: code, Text: fmt.Sprintf(format, args...), Err: err}
}
