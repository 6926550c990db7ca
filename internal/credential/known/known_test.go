package known

import (
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestValuesOfTasks(t *testing.T) {
	var v Values
	if v.Masker("t-1") != nil {
		t.Error("values of nobody")
	}
	v.Add("t-1", task.NewSecret("first-value"), task.Secret{})
	one := v.Masker("t-1")
	v.Add("t-1", task.NewSecret("first-value"))
	if v.Masker("t-1") != one {
		t.Error("what is known is added again")
	}
	v.Add("t-1", task.NewSecret("second-value"))
	if got := v.Masker("t-1").Seal("first-value second-value third-value"); got != "[sealed] [sealed] third-value" {
		t.Error(got)
	}
	if v.Masker("t-2") != nil {
		t.Error("a task has the values of another one")
	}
	v.Forget("t-1")
	if v.Masker("t-1") != nil {
		t.Error("values of a task that is over")
	}
}
