mod rmr;
