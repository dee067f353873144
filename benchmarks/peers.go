package main

var peers []scenario
