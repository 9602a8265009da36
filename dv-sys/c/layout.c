const int dv_layout_dummy;
