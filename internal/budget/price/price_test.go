package price

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestPrices(t *testing.T) {
	table, err := New("# ours\nlocal 0 0 - -\ngpt-5 2 20 1 -   # a contract\n")
	if err != nil {
		t.Fatal(err)
	}
	used := func(model string) task.ModelSpend {
		return task.ModelSpend{ModelTokens: task.ModelTokens{Model: model, Input: 1000, Output: 100, CacheRead: 10, CacheWrite: 1}}
	}
	for model, want := range map[string]int64{
		"claude-sonnet-4-5-20250929": 3*1000 + 15*100 + 3 + 4, // rounded up
		"claude-sonnet-4-20250514":   3*1000 + 15*100 + 3 + 4,
		"claude-opus-4-5@20251101":   5*1000 + 25*100 + 5 + 7,
		"gpt-5-2025-08-07":           2*1000 + 20*100 + 10 + 2,
		"gpt-5-mini":                 250 + 200 + 1,
		"local":                      0,
		"gpt-5000":                   -1,
		"claude":                     -1,
		"anthropic/claude-sonnet-4":  -1,
		"":                           -1,
	} {
		s := table.Of([]task.ModelSpend{used(model)})
		if got := s.Models[0]; got.Priced != (want >= 0) || got.MicroUSD != max(want, 0) || table.Known(model) != got.Priced {
			t.Errorf("%s: %+v, want %d", model, got, want)
		}
	}
	s := table.Of([]task.ModelSpend{used("local"), used("who")})
	if s.Tokens() != 2222 || s.MicroUSD() != 0 || s.Unpriced() != "who" {
		t.Errorf("%d tokens, %d, without a price %q", s.Tokens(), s.MicroUSD(), s.Unpriced())
	}
	if (Table{}).Known("gpt-5") {
		t.Error("the zero table has prices")
	}
}

func TestWrongPrices(t *testing.T) {
	for text, want := range map[string]string{
		"a 1 2 3":              "line 1: must be a model and its four prices",
		"\na 1 2 3 4 5":        "line 2: must be",
		"a - 2 3 4":            `"-" is not a price`,
		"a 1 2 x 4":            `"x" is not a price`,
		"a -1 2 3 4":           `"-1" is not a price`,
		"a NaN 2 3 4":          `"NaN" is not a price`,
		"a Inf 2 3 4":          `"Inf" is not a price`,
		"a 1 2 - -\na 1 2 - -": "line 2: a has a price already",
	} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
