package selftest

import (
	"net/http"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestAWSSample(t *testing.T) {
	const real = "ASIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:IQoJb3JpZ2luX2VjE=="
	l := task.Lease{
		Kind: task.KindAWS, Placeholder: "AKIAPLACEHOLDERABCDE:placeholderabcdefghijklmnopqrstuvwxyz234",
		Settings: map[string]string{task.SettingRegion: "us-east-1,eu-west-1", task.SettingServices: "s3"},
	}
	r := sampleAWS(l, time.Now())
	if r == nil || !holds(r, l.Placeholder) || shows(l, r, real) {
		t.Fatalf("the sample is %+v", r)
	}
	keys, err := task.ParseAWSKeys(real)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Security-Token", keys.Token.Reveal())
	r.Header.Set("Authorization", authorization(keys, l, r.Header.Get("X-Amz-Date"), true))
	if !shows(l, r, real) || holds(r, l.Placeholder) {
		t.Errorf("signed anew it is not taken: %+v", r)
	}
	for name, change := range map[string]func(http.Header){
		"another date":       func(h http.Header) { h.Set("X-Amz-Date", "20260301T120000Z") },
		"no date":            func(h http.Header) { h.Del("X-Amz-Date") },
		"no token":           func(h http.Header) { h.Del("X-Amz-Security-Token") },
		"two signatures":     func(h http.Header) { h.Add("Authorization", "x") },
		"a signature of old": func(h http.Header) { h.Set("Authorization", sampleAWS(l, time.Now()).Header.Get("Authorization")) },
	} {
		other := r.Clone(t.Context())
		change(other.Header)
		if shows(l, other, real) {
			t.Errorf("%s: it is taken", name)
		}
	}
	r.Header.Set("X-Note", "AKIAPLACEHOLDERABCDE")
	if !holds(r, l.Placeholder) {
		t.Error("a part of the placeholder is not seen")
	}
	if sampleAWS(task.Lease{Kind: task.KindAWS, Placeholder: "placeholder"}, time.Now()) != nil {
		t.Error("a sample without keys")
	}
}
