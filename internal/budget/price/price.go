// Package price says what models cost: a table that comes with the program, and
// the operator's own lines in place of its.
//
// Not promised: that a vendor charges what the table says. Discounts, tiers,
// searches and whatever else is not by token is not in it.
package price

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

//go:embed prices.txt
var own string

// Table is what models cost. The zero Table has no price. It is never changed
// once it is made.
type Table struct{ of map[string]price }

// price is in dollars a million tokens, which is millionths of a dollar a token.
type price struct{ input, output, cacheRead, cacheWrite float64 }

// most is the highest price that is believed.
const most = 100_000

// New returns the program's table with the operator's lines (empty: none) in
// place of its. A *task.Failure with task.InputInvalid names a line that is
// wrong.
func New(operator string) (Table, error) {
	t := Table{of: map[string]price{}}
	for _, text := range []struct{ name, text string }{{"the program's own prices", own}, {"prices", operator}} {
		seen := map[string]bool{}
		for i, line := range strings.Split(text.text, "\n") {
			model, p, err := parse(line)
			if err == nil && model != "" && seen[model] {
				err = fmt.Errorf("%s has a price already", model)
			}
			if err != nil {
				return Table{}, task.Fail(task.InputInvalid, fmt.Sprintf("%s line %d: %v", text.name, i+1, err), nil)
			}
			if model != "" {
				seen[model], t.of[model] = true, p
			}
		}
	}
	return t, nil
}

// parse reads one line; an empty model is a line without a price.
func parse(line string) (model string, p price, err error) {
	line, _, _ = strings.Cut(line, "#")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", p, nil
	}
	if len(fields) != 5 {
		return "", p, fmt.Errorf("must be a model and its four prices: input, output, cache read, cache write")
	}
	if len(fields[0]) > 128 {
		return "", p, fmt.Errorf("a model's name has at most 128 characters")
	}
	for i, to := range []*float64{&p.input, &p.output, &p.cacheRead, &p.cacheWrite} {
		text := fields[i+1]
		if text == "-" && i > 1 {
			*to = p.input
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= most) {
			return "", p, fmt.Errorf("%q is not a price from 0 to %d dollars a million tokens", text, most)
		}
		*to = v
	}
	return fields[0], p, nil
}

// find is the price of a model: of the longest line that fits.
func (t Table) find(model string) (price, bool) {
	for name := model; name != ""; {
		if p, ok := t.of[name]; ok {
			return p, true
		}
		i := strings.LastIndexAny(name, "-@:")
		if i < 0 {
			break
		}
		name = name[:i]
	}
	return price{}, false
}

// Known says whether a model has a price.
func (t Table) Known(model string) bool {
	_, ok := t.find(model)
	return ok
}

// Of prices what models were used for.
func (t Table) Of(list []task.ModelSpend) task.Spend {
	s := task.Spend{Models: make([]task.ModelSpend, 0, len(list))}
	for _, m := range list {
		p, ok := t.find(m.Model)
		m.Priced, m.MicroUSD = ok, 0
		if ok {
			m.MicroUSD = int64(math.Ceil(float64(m.Input)*p.input + float64(m.Output)*p.output + float64(m.CacheRead)*p.cacheRead + float64(m.CacheWrite)*p.cacheWrite))
		}
		s.Models = append(s.Models, m)
	}
	return s
}
