package task

import (
	"strings"
	"testing"
)

func TestAWSKeys(t *testing.T) {
	token := strings.Repeat("t/+=", 200)
	for text, fault := range map[string]string{
		"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY": "",
		"ASIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfi:" + token:    "",
		"minio-user.1:a-secret-of-minio":                                "",
		"minio-user.1:a-secret-of-minio:" + token:                       "",
		"":                                      "must be ID:SECRET",
		"wJalrXUtnFEMI":                         "must be ID:SECRET",
		"a:b:c:d":                               "must be ID:SECRET",
		"AK/A:wJalrXUtnFEMI":                    "no access key id",
		":wJalrXUtnFEMI":                        "no access key id",
		"AKIAIOSFODNN7EXAMPLE:short":            "secret access key",
		"AKIAIOSFODNN7EXAMPLE:with space in it": "secret access key",
		"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI:":   "session token",
		"ASIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI":    "without their session token",
		"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI:" + token:   "beside keys that have none",
		"minio:wJalrXUtnFEMI:t\r\nHost: evil.example":   "must be ID:SECRET",
		"minio:wJalrXUtnFEMI:ttttttttttttttttttttt\r\n": "session token",
	} {
		keys, err := ParseAWSKeys(text)
		if fault == "" {
			if err != nil || keys.Text().Reveal() != text {
				t.Errorf("%.30q: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "wJalr") {
			t.Errorf("%.30q: %v, want %q", text, err, fault)
		}
	}
}
