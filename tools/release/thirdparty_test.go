package main

import (
	"strings"
	"testing"

	"meridian/tools/internal/gomodule"
	"meridian/tools/internal/licence"
)

func TestThirdPartyLicencesHoldEveryTextOnce(t *testing.T) {
	text := thirdPartyLicences([]gomodule.Module{
		{Path: "a", Version: "v1.0.0", Files: []licence.File{{Path: "LICENSE", Text: "shared text\n"}, {Path: "NOTICE", Text: "by a"}}},
		{Path: "b", Version: "v2.0.0", Files: []licence.File{{Path: "COPYING", Text: "shared text"}}},
	})
	for _, want := range []string{"a v1.0.0: LICENSE\nb v2.0.0: COPYING\n\nshared text\n", "a v1.0.0: NOTICE\n\nby a\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Count(text, "shared text") != 1 {
		t.Errorf("the same text twice in\n%s", text)
	}
}
