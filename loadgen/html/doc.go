// Package html turns load reports into one self-contained page with plots: no
// network is needed to look at it. uPlot 1.6.32 (MIT, see uplot.LICENSE) is
// embedded. It owns no goroutines and no locks.
package html
