package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// maxReceipt bounds a receipt that is read.
const maxReceipt = 256 << 20

type auditVerifyOptions struct {
	key, log, checkpoint string
	receipts             []string
	json                 bool
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var o auditVerifyOptions
	cmd := &cobra.Command{
		Use: "verify --key KEY|FILE [RECEIPT...]", Short: "Check receipts and exports, without a server", Args: cobra.ArbitraryArgs,
		Long: `Check receipts, and an export of the whole account, without a server. The key must come
from outside: one that was kept since the installation was made ("audit key"). With
--log, each receipt must also be in the export. With --checkpoint, an export that was cut
back to an earlier state or rewritten shows; a checkpoint is in every receipt and at the
end of every export, and is printed when all is well.

Ends with 0 when everything holds, and with 1 otherwise, naming each finding.`,
		Example: `  cofferdam audit verify --key audit.pub receipt.json
  cofferdam audit verify --key audit.pub --log export.jsonl --checkpoint kept.txt receipt.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.receipts, o.json = args, a.json
			return auditVerify(o, a.In, a.Out)
		},
	}
	cmd.Flags().StringVar(&o.key, "key", "", "the public key, or a file that holds it")
	cmd.Flags().StringVar(&o.log, "log", "", "an export to check as well")
	cmd.Flags().StringVar(&o.checkpoint, "checkpoint", "", "a signed checkpoint that was kept")
	return cmd
}

// verified is the outcome for one file.
type verified struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	audit.Report
}

func auditVerify(o auditVerifyOptions, in io.Reader, out io.Writer) error {
	key, err := readKey(o.key)
	if err != nil {
		return err
	}
	if len(o.receipts) == 0 && o.log == "" {
		return usage("nothing to verify; give a receipt, or an export with --log")
	}
	options := audit.VerifyOptions{}
	if o.checkpoint != "" {
		if o.log == "" {
			return usage("--checkpoint is compared with an export; give it with --log")
		}
		text, err := readBounded(o.checkpoint, in)
		if err != nil {
			return err
		}
		trusted, err := audit.ParseCheckpoint(key, text)
		if err != nil {
			return usage("--checkpoint %s: %v", o.checkpoint, err)
		}
		options.Trusted = &trusted
	}
	var all []verified
	for _, file := range o.receipts {
		bundle, err := readBounded(file, in)
		if err != nil {
			return err
		}
		report, err := audit.VerifyReceipt(key, bundle)
		if err != nil {
			return usage("--key: %v", err)
		}
		options.Receipts = append(options.Receipts, bundle)
		all = append(all, verified{file, report.OK(), report})
	}
	if o.log != "" {
		f, err := os.Open(o.log)
		if err != nil {
			return usage("--log: %v", err)
		}
		defer f.Close()
		report, err := audit.VerifyLog(key, f, options)
		if err != nil {
			return usage("--log %s: %v", o.log, err)
		}
		all = append(all, verified{o.log, report.OK(), report})
	}
	return tellVerified(all, o.json, out)
}

// readKey takes the key itself, or reads it from a file.
func readKey(key string) (string, error) {
	if key == "" {
		return "", usage("--key is needed: the public key that was kept since the installation was made (cofferdam audit key)")
	}
	data, err := os.ReadFile(key)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Count(key, "+") >= 2:
		return key, nil
	case err != nil:
		return "", usage("--key: neither a key nor a file that can be read: %v", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func readBounded(file string, in io.Reader) ([]byte, error) {
	r := in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usage("%v", err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxReceipt+1))
	if err != nil {
		return nil, usage("%s: %v", file, err)
	}
	if len(data) > maxReceipt {
		return nil, problem("limit.size", "%s: larger than %s", file, size(maxReceipt))
	}
	return data, nil
}

func tellVerified(all []verified, asJSON bool, out io.Writer) error {
	ok := true
	for _, v := range all {
		ok = ok && v.OK
	}
	if asJSON {
		if err := printJSON(out, struct {
			OK    bool       `json:"ok"`
			Files []verified `json:"files"`
		}{ok, all}); err != nil {
			return err
		}
	} else {
		for _, v := range all {
			tellOne(v, out)
		}
		if ok {
			tellCheckpoint(all, out)
		}
	}
	if !ok {
		return &exitError{1}
	}
	return nil
}

// tellCheckpoint prints the newest checkpoint that was seen.
func tellCheckpoint(all []verified, out io.Writer) {
	var newest *verified
	for i, v := range all {
		if v.Checkpoint != nil && (newest == nil || v.Checkpoint.Records > newest.Checkpoint.Records) {
			newest = &all[i]
		}
	}
	if newest != nil {
		fmt.Fprintf(out, "a checkpoint to keep elsewhere:\n%s", show.Text(newest.Note))
	}
}

func tellOne(v verified, out io.Writer) {
	if !v.OK {
		fmt.Fprintf(out, "%s: NOT VERIFIED\n", show.Line(v.File))
		for _, f := range v.Findings {
			fmt.Fprintf(out, "  %s\n", show.Line(f.Error()))
		}
		if v.Omitted > 0 {
			fmt.Fprintf(out, "  and %d more\n", v.Omitted)
		}
		return
	}
	what := fmt.Sprintf("%d receipts, %d records", v.Receipts, v.Records)
	if v.Task != "" {
		what = fmt.Sprintf("task %s, %d records", v.Task, v.Records)
	}
	fmt.Fprintf(out, "%s: verified: %s, signed by %s\n", show.Line(v.File), show.Line(what), show.Line(v.Origin))
	for _, id := range v.Open {
		fmt.Fprintf(out, "  task %s has records and no receipt: it has not ended, or its end was not recorded\n", show.Line(id))
	}
}
