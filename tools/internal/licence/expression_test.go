package licence

import (
	"errors"
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for expression, want := range map[string]Terms{
		"MIT":                        {{"MIT"}},
		"CC0-1.0 OR Apache-2.0":      {{"CC0-1.0"}, {"Apache-2.0"}},
		"MIT and BSD-3-Clause":       {{"MIT", "BSD-3-Clause"}},
		"A OR B AND C":               {{"A"}, {"B", "C"}},
		"(A OR B) AND C":             {{"A", "C"}, {"B", "C"}},
		"GPL-2.0-only WITH X AND(B)": {{"GPL-2.0-only WITH X", "B"}},
		"LGPL-2.1+":                  {{"LGPL-2.1+"}},
	} {
		got, err := Parse(expression)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %v, %v; want %v", expression, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, expression := range []string{"", "MIT License", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT/X11", "MIT WITH", "OR"} {
		if terms, err := Parse(expression); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", expression, terms)
		}
	}
}

func TestTermsJudge(t *testing.T) {
	for expression, want := range map[string]error{
		"CC0-1.0 OR Apache-2.0":               nil,
		"GPL-3.0-only OR MIT":                 nil,
		"GPL-3.0-only AND MIT":                ErrRefused,
		"MIT AND (GPL-3.0-only OR MPL-2.0)":   ErrRefused,
		"Apache-2.0 WITH LLVM-exception":      ErrRefused,
		"(GPL-3.0-only OR ISC) AND (MIT)":     nil,
		"LicenseRef-Proprietary OR MPL-2.0":   ErrRefused,
		"LicenseRef-Proprietary OR Unlicense": nil,
	} {
		terms, err := Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		if err := terms.Judge(Shipped); !errors.Is(err, want) || (want == nil && err != nil) {
			t.Errorf("%s: %v, want %v", expression, err, want)
		}
	}
	if err := (Terms{}).Judge(Shipped); !errors.Is(err, ErrUnknown) {
		t.Errorf("no terms at all: %v, want %v", err, ErrUnknown)
	}
}
